//! A scripted LNet: unit tests of whatever stands above LNet.
