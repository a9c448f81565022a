//! Contexts are kept for their user alone, chosen in one order, and refused if others made them.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// An environment with this home, and more.
fn with<'a>(
    home: &'a Path,
    more: &'a [(&'a str, &'a str)],
) -> impl Fn(&str) -> Option<OsString> + 'a {
    move |name| match name {
        "HOME" => Some(home.as_os_str().to_owned()),
        _ => more.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()),
    }
}

fn at(server: &str) -> Context {
    let server = server.to_owned();
    Context { server, ca: None, cert: None, cert_key: None, token_file: None }
}

fn name(text: &str) -> ContextName {
    ContextName::new(text).unwrap()
}

#[test]
fn a_context_is_kept_for_its_user_alone_and_removed_with_its_token() {
    let home = tempfile::tempdir().unwrap();
    let open = || Contexts::open(&with(home.path(), &[])).unwrap();
    let mut contexts = open();
    assert!(!contexts.put(&name("prod"), at("http://a:1"), Some("secret")).unwrap());
    assert!(!contexts.put(&name("test"), at("http://b:1"), None).unwrap());
    let folder = home.path().join(".config/regent");
    let tokens = || -> Vec<_> {
        fs::read_dir(folder.join("tokens")).unwrap().map(|file| file.unwrap().path()).collect()
    };
    let [kept] = &tokens()[..] else { panic!("{:?}", tokens()) };
    let kept = kept.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned();
    for (file, mode) in
        [("", 0o700), ("contexts.json", 0o600), ("tokens", 0o700), (kept.as_str(), 0o600)]
    {
        let facts = fs::metadata(folder.join(file)).unwrap();
        assert_eq!(facts.permissions().mode() & 0o777, mode, "{file}");
    }
    assert!(!fs::read_to_string(folder.join("contexts.json")).unwrap().contains("secret"));
    let mut contexts = open();
    assert_eq!(contexts.current(), Some(&name("test")));
    contexts.switch("prod").unwrap();
    assert_eq!(open().current(), Some(&name("prod")));
    // Another login without a token leaves no token behind.
    assert!(contexts.put(&name("prod"), at("http://a:1"), None).unwrap());
    assert!(tokens().is_empty());
    contexts.put(&name("prod"), at("http://a:1"), Some("secret")).unwrap();
    contexts.remove("prod").unwrap();
    assert!(tokens().is_empty());
    assert_eq!((open().current(), open().iter().count()), (None, 1));
    let unknown = contexts.remove("prod").unwrap_err().to_string();
    assert!(unknown.contains("there are test") && unknown.contains("regent login"), "{unknown}");
}

/// A process that uses a context reads its token again and again.
#[test]
fn a_token_of_another_login_is_never_shown_to_the_servers_of_an_earlier_one() {
    let home = tempfile::tempdir().unwrap();
    let open = || Contexts::open(&with(home.path(), &[])).unwrap();
    let (mut contexts, mut stale) = (open(), open());
    contexts.put(&name("prod"), at("http://a:1"), Some("of a")).unwrap();
    let old = open().find("prod").unwrap().1.token_file.unwrap();
    contexts.put(&name("prod"), at("http://b:1"), Some("of b")).unwrap();
    assert!(!old.exists(), "whoever used it is told so, and shows nothing else");
    // One that had read the contexts before takes back nothing of what others did since.
    stale.put(&name("test"), at("http://c:1"), None).unwrap();
    let (_, prod) = open().find("prod").unwrap();
    assert_eq!(prod.server, "http://b:1");
    assert_eq!(fs::read_to_string(prod.token_file.unwrap()).unwrap(), "of b\n");
    // One that cannot be saved leaves no token behind, and the old one as it was.
    let folder = home.path().join(".config/regent");
    fs::remove_file(folder.join("contexts.json")).unwrap();
    fs::create_dir(folder.join("contexts.json")).unwrap();
    let before = fs::read_dir(folder.join("tokens")).unwrap().count();
    assert!(stale.put(&name("prod"), at("http://a:1"), Some("of a")).is_err());
    assert_eq!(fs::read_dir(folder.join("tokens")).unwrap().count(), before);
}

#[test]
fn a_flag_comes_before_the_environment_and_that_before_the_current_context() {
    let home = tempfile::tempdir().unwrap();
    let mut contexts = Contexts::open(&with(home.path(), &[])).unwrap();
    contexts.put(&name("other"), at("http://other:1"), None).unwrap();
    contexts.put(&name("current"), at("http://current:1"), None).unwrap();
    let choose = |server, context, more: &[(&str, &str)]| {
        Wanted { server, context }.choose(&with(home.path(), more))
    };
    let [server, context] = [("REGENT_SERVER", "http://env:1"), ("REGENT_CONTEXT", "other")];
    let servers = |text: &str| Chosen::Servers(text.to_owned());
    let of = |text: &str| Chosen::Context(name(text), at(&format!("http://{text}:1")));
    let flag = Some("http://flag:1");
    for more in [&[][..], &[server], &[context], &[server, context]] {
        assert_eq!(choose(flag, None, more).unwrap(), servers("http://flag:1"));
        assert_eq!(choose(None, Some("other"), more).unwrap(), of("other"));
        assert!(matches!(choose(flag, Some("other"), more), Err(ContextError::Both(..))));
    }
    assert_eq!(choose(None, None, &[server]).unwrap(), servers("http://env:1"));
    assert_eq!(choose(None, None, &[context]).unwrap(), of("other"));
    assert!(matches!(choose(None, None, &[server, context]), Err(ContextError::Both(..))));
    assert_eq!(choose(None, None, &[]).unwrap(), of("current"));
    assert_eq!(choose(None, None, &[("REGENT_CONTEXT", "")]).unwrap(), of("current"));
    let nobody = tempfile::tempdir().unwrap();
    let chosen = Wanted::default().choose(&with(nobody.path(), &[])).unwrap();
    assert_eq!(chosen, Chosen::Nobody);
    assert_eq!(Wanted::default().choose(&|_| None).unwrap(), Chosen::Nobody);
}

/// A file that somebody else prepared, or that means something else, is refused and never passed over.
#[test]
fn a_hostile_file_of_contexts_is_refused_with_the_way_out() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".config/regent");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("contexts.json");
    let refuse = |what: &str| {
        let error = Wanted::default().choose(&with(home.path(), &[])).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert!(!error.contains("rgt_"), "{error}");
    };
    let put = |text: &str| {
        let _ = fs::remove_file(&path);
        regent_files::create_private(&path, text.as_bytes()).unwrap();
    };
    put(r#"{"contexts":{}}"#);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    refuse("chmod 600");
    fs::remove_file(&path).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(pipe.success());
    refuse("named pipe");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    refuse("device");
    put("");
    fs::File::options().write(true).open(&path).unwrap().set_len(1 << 30).unwrap();
    refuse("is it the right file?");
    for (text, why) in [
        ("rgt_0123", "no JSON"),
        ("{}", "contexts"),
        (r#"{"contexts":{"../x":{"server":"http://a"}}}"#, "no name of a context"),
        (r#"{"contexts":{"x":{"server":"http://a","tokn":"y"}}}"#, "tokn"),
        (r#"{"contexts":{"x":{"server":"http://u:p@a"}}}"#, "user or password"),
        (r#"{"contexts":{"x":{"server":"http://a","cert":"/c"}}}"#, "go together"),
        (r#"{"contexts":{"x":{"server":"http://a","ca":"ca.crt"}}}"#, "whole path"),
        (r#"{"contexts":{},"current":"gone"}"#, "no context \"gone\""),
    ] {
        put(text);
        refuse(why);
    }
}

#[test]
fn servers_get_a_name_that_is_one() {
    for (server, expected) in [
        ("http://127.0.0.1:7400", "127.0.0.1-7400"),
        ("https://a.example:7400,https://b.example:7400", "a.example-7400"),
        ("http://[::1]:7400", "default"),
        ("unix:///run/regent.sock", "local"),
        ("http://proxy/regent/", "proxy"),
    ] {
        assert_eq!(ContextName::of_server(server).as_str(), expected, "{server}");
    }
    for bad in ["", ".", "..", "-x", "a/b", "a b", "ä", &"x".repeat(65)] {
        assert!(ContextName::new(bad).is_err(), "{bad}");
    }
}
