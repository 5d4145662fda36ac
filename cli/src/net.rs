//! `nlx net show`: the networks that a configuration gives on this host, without starting them.

pub(crate) mod devices;
mod ni;
mod print;

use lnet_node::{Choice, ChoiceReason, NetSpec, NodeConfig, Tunable, explain};

use crate::args::NetShowArgs;
use crate::failure::Failure;
use crate::{output, setup};
use ni::NiEntry;

pub(crate) fn run(args: &NetShowArgs) -> Result<(), Failure> {
    let config = setup::config(NodeConfig::new(), &args.setup)?;
    let shown = Shown::of(config, args)?;
    // The explanation is most useful for a wrong configuration.
    let sound = shown.check();
    if sound.is_err() && !args.why {
        return sound;
    }
    if args.json {
        output::json(&shown.to_json())?;
    } else if args.yaml {
        output::line(shown.to_yaml())?;
    } else {
        output::line(&shown)?;
    }
    sound
}

/// The networks to show.
struct Shown {
    port: u16,
    config: NodeConfig,
    nets: Vec<ShownNet>,
    why: bool,
    /// Module, name and value of each tunable.
    tunables: Vec<(&'static str, &'static str, String)>,
}

struct ShownNet {
    name: String,
    nis: Vec<NiEntry>,
    choices: Vec<Choice>,
}

impl Shown {
    fn of(mut config: NodeConfig, args: &NetShowArgs) -> Result<Shown, Failure> {
        let (port, policy) = (config.tcp().accept_port, setup::policy_name(config.tcp().accept_policy()));
        let shown = |spec: &NetSpec| {
            let choices = explain(spec).map_err(|error| Failure::of_node(&error, port))?;
            let nis = choices
                .iter()
                .filter_map(|choice| NiEntry::of(choice, &config, spec, port, policy))
                .collect();
            Ok(ShownNet { name: spec.net().to_string(), nis, choices })
        };
        let nets = config.nets().iter().map(shown).collect::<Result<Vec<_>, Failure>>()?;
        let value = |tunable: &Tunable| (tunable.module(), tunable.name(), tunable.value(&config));
        let acting = Tunable::all().filter(|tunable| args.tunables && tunable.acts());
        let tunables = acting.map(value).collect();
        Ok(Shown { port, nets, why: args.why, tunables, config })
    }

    /// Checks whether a node could be started with the configuration, as far as that is known
    /// without starting it.
    fn check(&self) -> Result<(), Failure> {
        let refused = self.nets.iter().flat_map(|net| &net.choices).find_map(|choice| match &choice.reason {
            ChoiceReason::Refused(error) => Some(Failure::of_node(error, self.port)),
            _ => None,
        });
        refused.map_or(Ok(()), Err)?;
        self.config.check().map_err(|error| Failure::of_node(&error, self.port))
    }
}
