//! Output of networks: table, JSON and YAML.

use std::fmt;

use comfy_table::Table;
use lnet_node::Choice;
use serde_json::{Map, Value, json};

use super::{Shown, ShownNet};
use crate::tables::table;

impl Shown {
    pub(super) fn to_json(&self) -> Value {
        let nets = self.nets.iter().map(|net| {
            let mut value = json!({ "net": net.name, "nis": net.nis });
            if self.why {
                value["why"] = net.choices.iter().map(reason).collect();
            }
            value
        });
        let mut value = json!({ "nets": nets.collect::<Vec<_>>() });
        if !self.tunables.is_empty() {
            let mut modules: Map<String, Value> = Map::new();
            for (module, name, setting) in &self.tunables {
                let module = modules.entry(*module).or_insert_with(|| json!({}));
                module[*name] = setting.as_str().into();
            }
            value["tunables"] = modules.into();
        }
        value
    }

    /// Formats the networks as `lnetctl net show` does, with quoted texts.
    pub(super) fn to_yaml(&self) -> String {
        let mut lines = vec!["net:".to_string()];
        for net in &self.nets {
            lines.push(format!("    - net type: {}", net.name));
            lines.push("      local NI(s):".to_string());
            for ni in &net.nis {
                lines.push(format!("        - nid: {}", ni.nid));
                let texts = [("status", ni.status.clone()), ("speed", ni.speed()), ("CPT", ni.partitions())];
                lines.extend(texts.map(|(name, text)| format!("          {name}: {}", quoted(&text))));
                lines.push(format!("          interfaces:\n              0: {}", quoted(&ni.interface)));
                lines.push(format!("          accept_port: {}\n          accept: {}", ni.port, ni.accept));
                for (title, values) in [("tunables", &ni.tunables), ("lnd tunables", &ni.lnd_tunables)] {
                    lines.push(format!("          {title}:"));
                    lines.extend(values.iter().map(|(name, value)| format!("              {name}: {value}")));
                }
            }
            if self.why {
                lines.push("      why:".to_string());
                lines.extend(net.choices.iter().map(|choice| {
                    let (name, address, taken) = words(choice);
                    format!("        - {}", quoted(&format!("{name} {address}: {taken}{}", choice.reason)))
                }));
            }
        }
        let mut module = "";
        for (of, name, value) in &self.tunables {
            if module.is_empty() {
                lines.push("tunables:".to_string());
            }
            if *of != module {
                (module, _) = (of, lines.push(format!("    {of}:")));
            }
            lines.push(format!("        {name}: {}", quoted(value)));
        }
        lines.join("\n")
    }
}

/// Quotes a text: JSON text is valid YAML.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn reason(choice: &Choice) -> Value {
    json!({
        "interface": choice.interface.as_ref().map(|interface| interface.name.as_str()),
        "rdma": choice.port,
        "address": choice.address.map(|address| address.to_string()),
        "nid": choice.nid.map(|nid| nid.to_string()),
        "why": choice.reason.to_string(),
    })
}

/// Returns interface and address, with the NID if it is used.
fn words(choice: &Choice) -> (String, String, String) {
    let name = choice.interface.as_ref().map_or("-", |interface| &interface.name);
    let name = match &choice.port {
        Some(port) => format!("{name} ({port})"),
        None => name.to_string(),
    };
    let address = choice.address.map_or_else(|| "-".to_string(), |address| address.to_string());
    let taken = choice.nid.map(|nid| format!("{nid}: ")).unwrap_or_default();
    (name, address, taken)
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tables = vec![self.nis()];
        if self.why {
            tables.extend(self.nets.iter().map(reasons));
        }
        if !self.tunables.is_empty() {
            tables.extend([self.tunables_of_nis(), self.tunables_of_node()]);
        }
        let tables = tables.iter().filter(|table| !table.is_empty()).map(Table::to_string);
        f.write_str(&tables.collect::<Vec<_>>().join("\n"))
    }
}

impl Shown {
    fn nis(&self) -> Table {
        let mut table = table(["NID", "status", "interface", "speed", "CPTs", "port", "accept"]);
        for ni in self.nets.iter().flat_map(|net| &net.nis) {
            let port = ni.port.to_string();
            let row = [&ni.nid, &ni.status, &ni.place(), &ni.speed(), &ni.partitions(), &port, ni.accept];
            table.add_row(row);
        }
        table
    }

    fn tunables_of_nis(&self) -> Table {
        let mut table = table(["NID", "tunable", "value"]);
        for ni in self.nets.iter().flat_map(|net| &net.nis) {
            for (name, value) in ni.tunables.iter().chain(&ni.lnd_tunables) {
                table.add_row([&ni.nid, *name, &value.to_string()]);
            }
        }
        table
    }

    fn tunables_of_node(&self) -> Table {
        let mut table = table(["module", "tunable", "value"]);
        for (module, name, value) in &self.tunables {
            table.add_row([*module, *name, value.as_str()]);
        }
        table
    }
}

fn reasons(net: &ShownNet) -> Table {
    let mut table = table([net.name.as_str(), "address", "why"]);
    for choice in &net.choices {
        let (name, address, taken) = words(choice);
        table.add_row([name, address, format!("{taken}{}", choice.reason)]);
    }
    table
}
