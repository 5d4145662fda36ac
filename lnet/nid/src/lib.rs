//! LNet's plain names and numbers: NIDs, nets, PIDs, match bits, and their texts.
