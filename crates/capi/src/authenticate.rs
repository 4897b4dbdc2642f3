//! Authenticates the program: with the login in the URL, or with the login that the program's
//! callback returns.
//!
//! Invariant: no lock is held while the callback runs, so the callback may use the library.

use std::ffi::{CString, c_int};
use std::sync::Arc;

use dafs_client::{
    ClientError, CredentialSource, Location, Login, ServerName, Session, SessionOptions, Tickets,
};
use dafs_share::Held;

use crate::check;
use crate::client::ClientObject;
use crate::failure::{Failure, Result, c_text};
use crate::types::{
    DAP_AUTH_AUTOMATIC, DAP_AUTH_KERBEROS, DAP_AUTH_NONE, DAP_AUTH_PASSWORD, dap_auth_answer,
    dap_auth_question, dap_connect_options,
};

/// Connects. If there is a callback, asks it for a login until the server accepts one or the
/// callback gives up.
pub(crate) fn connect(
    client: &Arc<ClientObject>,
    location: &Location,
    mut options: SessionOptions,
    given: &dap_connect_options,
) -> Result<Held<Session>> {
    if given.authenticate.is_none() {
        return attempt(client, location, &options).map_err(|refused| refused.failure);
    }
    // The login that the callback returns replaces the login in the URL.
    let mut location = location.clone();
    let user = location.user.take().map(|(user, _)| user);
    let mut refusal: Option<String> = None;
    let mut number = 1u32;
    loop {
        options.login = ask(given, &location.server, user.as_deref(), number, refusal.as_deref())?;
        match attempt(client, &location, &options) {
            Ok(session) => return Ok(session),
            Err(Refused { failure, is_of_identity: true }) => refusal = Some(failure.text),
            Err(Refused { failure, .. }) => return Err(failure),
        }
        number = number.saturating_add(1);
    }
}

struct Refused {
    failure: Failure,
    is_of_identity: bool,
}

fn attempt(
    client: &Arc<ClientObject>,
    location: &Location,
    options: &SessionOptions,
) -> std::result::Result<Held<Session>, Refused> {
    // SAFETY: the session is held, and errors contain no client objects.
    let connected = unsafe {
        client.within(|entered| {
            Ok(entered.connect(location, options).map(|session| entered.hold(session)))
        })
    };
    let refused = |failure| Refused { failure, is_of_identity: false };
    connected.map_err(refused)?.map_err(|error| Refused {
        is_of_identity: matches!(
            error,
            ClientError::Login { .. } | ClientError::Kerberos { .. } | ClientError::NoLogin { .. }
        ),
        failure: error.into(),
    })
}

fn ask(
    given: &dap_connect_options,
    server: &ServerName,
    user: Option<&str>,
    attempt: u32,
    refusal: Option<&str>,
) -> Result<Login> {
    let Some(authenticate) = given.authenticate else { return Ok(Login::None) };
    let null = std::ptr::null();
    let server = c_text(&server.to_string());
    let (asked_user, refusal) = (user.map(c_text), refusal.map(c_text));
    let pointer = |text: &Option<CString>| text.as_ref().map_or(null, |text| text.as_ptr());
    let question = dap_auth_question {
        server: server.as_ptr(),
        user: pointer(&asked_user),
        attempt,
        refusal: pointer(&refusal),
    };
    let mut answer = dap_auth_answer {
        method: DAP_AUTH_NONE,
        user: null,
        password: null,
        service: null,
        cache: null,
        keytab: null,
    };
    // SAFETY: the function has the type that is declared for it, and both structs live until it
    // returns. The header asks the program to let it return, without an exception.
    let returned = unsafe { authenticate(given.authenticate_context, &question, &mut answer) };
    if returned != 0 {
        return Err(callback_failure(returned));
    }
    // SAFETY: the callback stores valid texts or NULL in the answer.
    unsafe { login(&answer, user) }
}

fn callback_failure(returned: c_int) -> Failure {
    let is_errno = (-4095..0).contains(&returned);
    let text = format!("the program's authenticate callback returned {returned}");
    Failure::new(if is_errno { -returned } else { libc::EINVAL }, text)
}

/// Converts the answer of a callback to a login.
///
/// # Safety
/// Each text is NULL or ends with a NUL.
unsafe fn login(answer: &dap_auth_answer, user: Option<&str>) -> Result<Login> {
    // SAFETY: the caller guarantees that its pointers are valid.
    let text = |pointer, what| unsafe { check::optional_text(pointer, what) };
    match answer.method {
        DAP_AUTH_NONE => Ok(Login::None),
        DAP_AUTH_PASSWORD => {
            let user = text(answer.user, "user of dap_auth_answer")?.or(user);
            let user = user.ok_or_else(|| Failure::invalid("there is a password but no user"))?;
            let password = text(answer.password, "password of dap_auth_answer")?.unwrap_or("");
            Ok(Login::Password { user: user.to_owned(), password: password.to_owned() })
        }
        DAP_AUTH_KERBEROS => {
            let service = text(answer.service, "service of dap_auth_answer")?;
            let service = service.map(str::parse).transpose();
            let service = service.map_err(|error| Failure::invalid(format!("service: {error}")))?;
            let cache = text(answer.cache, "cache of dap_auth_answer")?;
            let keytab = text(answer.keytab, "keytab of dap_auth_answer")?;
            let source = match (cache, keytab) {
                (None, None) => CredentialSource::Default,
                (Some(cache), None) => CredentialSource::Cache(cache.into()),
                (None, Some(file)) => {
                    CredentialSource::Keytab { file: file.into(), principal: None }
                }
                (Some(_), Some(_)) => {
                    let text = "cache and keytab of dap_auth_answer exclude each other";
                    return Err(Failure::invalid(text));
                }
            };
            Ok(Login::Kerberos(Tickets::default().service(service).source(source)))
        }
        DAP_AUTH_AUTOMATIC => Ok(Login::Automatic),
        other => Err(Failure::invalid(format!("method {other} of dap_auth_answer is invalid"))),
    }
}
