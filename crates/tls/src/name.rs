//! The name in a replica's certificate: `regent://CLUSTER/replica/ID`.

use std::fmt;
use std::str::FromStr;

/// Which replica of which cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaName {
    /// The cluster, shown in 32 hexadecimal digits as `GET /v1/cluster` does.
    pub cluster: u128,
    /// The replica's number; never zero.
    pub replica: u64,
}

impl fmt::Display for ReplicaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "regent://{:032x}/replica/{}", self.cluster, self.replica)
    }
}

impl FromStr for ReplicaName {
    type Err = String;

    /// Reads exactly what [`Display`](fmt::Display) writes: one name has one spelling.
    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.strip_prefix("regent://").and_then(|rest| {
            let (cluster, replica) = rest.split_once("/replica/")?;
            let cluster = u128::from_str_radix(cluster, 16).ok()?;
            let replica = replica.parse().ok().filter(|replica| *replica != 0)?;
            Some(Self { cluster, replica })
        });
        parsed.filter(|name| name.to_string() == text).ok_or_else(|| {
            let shown: String = text.chars().take(80).collect();
            format!("{shown:?} is no replica's name like regent://CLUSTER/replica/1")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_spelling() {
        let name = ReplicaName { cluster: 0xab, replica: 7 };
        let text = "regent://000000000000000000000000000000ab/replica/7";
        assert_eq!(name.to_string(), text);
        assert_eq!(text.parse(), Ok(name));
        for bad in [
            "",
            "regent://ab/replica/7",
            "regent://000000000000000000000000000000AB/replica/7",
            "regent://000000000000000000000000000000ab/replica/0",
            "regent://000000000000000000000000000000ab/replica/07",
            "regent://000000000000000000000000000000ab/replica/+7",
            "regent://000000000000000000000000000000ab/replica/7/",
            "regent://000000000000000000000000000000ab/node/7",
            "spiffe://000000000000000000000000000000ab/replica/7",
        ] {
            assert!(bad.parse::<ReplicaName>().is_err(), "{bad}");
        }
    }
}
