//! Who wins, who says so, and that the sample file is true.

use std::ffi::OsString;

use super::*;

fn environment(pairs: &[(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
    let pairs: Vec<(String, OsString)> =
        pairs.iter().map(|(key, value)| ((*key).to_owned(), value.into())).collect();
    move |name| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
}

fn listen_of(
    flags: &[(Key, String)],
    variables: &[(&str, &str)],
    file: Option<&File>,
) -> (String, String) {
    let effective = Effective::resolve(flags, &environment(variables), file).unwrap();
    let settings = effective.settings().unwrap();
    (settings.listen.to_string(), effective.origin(Key::Listen).to_string())
}

#[test]
fn a_flag_beats_the_environment_beats_a_file_heartbeats_the_default() {
    let flag = [(Key::Listen, "127.0.0.1:4".to_owned())];
    let variable = [("REGENT_LISTEN", "127.0.0.1:3")];
    let file = File::of("r.toml", "# ours\nlisten = \"127.0.0.1:2\"\n");
    let told = |address: &str, origin: &str| (address.to_owned(), origin.to_owned());
    assert_eq!(listen_of(&flag, &variable, Some(&file)), told("127.0.0.1:4", "--listen"));
    assert_eq!(listen_of(&[], &variable, Some(&file)), told("127.0.0.1:3", "$REGENT_LISTEN"));
    assert_eq!(listen_of(&[], &[], Some(&file)), told("127.0.0.1:2", "r.toml:2"));
    assert_eq!(listen_of(&[], &[], None), told("127.0.0.1:7400", "default"));
    assert_eq!(listen_of(&[], &[("REGENT_LISTEN", "")], None), told("127.0.0.1:7400", "default"));
}

#[test]
fn a_bad_value_is_told_with_the_flag_or_variable_that_holds_it() {
    let flag = [(Key::RequestsMax, "lots".to_owned())];
    let error = Effective::resolve(&flag, &environment(&[]), None).unwrap_err().to_string();
    assert!(error.starts_with("--requests-max: \"lots\" is no whole number"), "{error}");
    let variables = environment(&[("REGENT_HEAD_TIMEOUT", "5")]);
    let error = Effective::resolve(&[], &variables, None).unwrap_err().to_string();
    assert!(error.starts_with("$REGENT_HEAD_TIMEOUT: \"5\" is no duration"), "{error}");
}

#[test]
fn a_value_that_no_server_can_serve_under_is_told_with_its_origin() {
    let file = File::of("r.toml", "\n\nrequests_max = 0\n");
    let effective = Effective::resolve(&[], &environment(&[]), Some(&file)).unwrap();
    let error = effective.settings().unwrap_err().to_string();
    assert_eq!(error, "requests_max must be more than zero (from r.toml:3)");
}

#[test]
fn an_empty_data_directory_means_the_usual_place() {
    let home = environment(&[("HOME", "/u"), ("REGENT_DATA_DIR", "")]);
    let settings = Effective::resolve(&[], &home, None).unwrap().settings().unwrap();
    assert_eq!(settings.data_dir, Path::new("/u/.local/share/regent"));
}

#[test]
fn a_file_that_was_named_must_exist() {
    let missing = environment(&[("REGENT_CONFIG", "/nonexistent/regent.toml")]);
    let error = find_file(None, &missing).unwrap_err().to_string();
    assert!(error.starts_with("/nonexistent/regent.toml: "), "{error}");
    assert!(error.contains("--config"), "{error}");
    assert!(find_file(None, &environment(&[("HOME", "/nonexistent")])).is_ok());
}

#[test]
fn the_sample_lists_every_setting_at_its_default_with_its_meaning() {
    let file = File::of("config/regent.toml", SAMPLE);
    let home = environment(&[("HOME", "/u")]);
    let sample = Effective::resolve(&[], &home, Some(&file)).unwrap();
    let default = Effective::resolve(&[], &home, None).unwrap();
    for ((key, value, origin), (_, expected, _)) in sample.iter().zip(default.iter()) {
        assert_eq!(value, expected, "{key} of the sample is not its default");
        assert!(matches!(origin, Origin::Line(..)), "{key} is missing in the sample");
        let comment: String =
            SAMPLE.lines().filter_map(|line| line.strip_prefix("# ")).collect::<Vec<_>>().join(" ");
        assert!(comment.contains(key.about()), "the sample does not say: {}", key.about());
        assert!(SAMPLE.contains(&key.variable()), "the sample does not name {}", key.variable());
    }
    assert!(sample.settings().is_ok());
}

#[test]
fn variables_that_are_nearly_a_setting_are_noticed_and_others_left_alone() {
    let names = [
        "REGENT_LISTN",
        "REGENT_LISTEN",
        "REGENT_PORT",
        "REGENT_SERVICE_HOST",
        "REGENT_CONFIG",
        "REGENT_SERVER",
        "REGENT_SESSION",
        "REGENT_TIMEOUT",
        "REGENT_OUTPUT",
        "REGENT_CA",
        "REGENT_CERT",
        "REGENT_CERT_KEY",
        "HOME",
    ];
    let found = misspelt(names.into_iter());
    assert_eq!(found, [("REGENT_LISTN".to_owned(), "REGENT_LISTEN".to_owned())]);
}

#[test]
fn bounds_of_ttls_that_no_store_keeps_are_told_with_their_origins() {
    let flags = [(Key::TtlMin, "10s".to_owned()), (Key::TtlMax, "5s".to_owned())];
    let effective = Effective::resolve(&flags, &environment(&[]), None).unwrap();
    let error = effective.settings().unwrap_err().to_string();
    assert!(error.contains("10000 ms to 5000 ms are refused"), "{error}");
    assert!(error.ends_with("(from --ttl-min and --ttl-max)"), "{error}");
    let flags = [(Key::TtlMax, "2h".to_owned())];
    let effective = Effective::resolve(&flags, &environment(&[]), None).unwrap();
    let settings = effective.settings().unwrap().store_settings;
    assert_eq!(settings.default_policy.ttl_ms_max, 7_200_000);
}
