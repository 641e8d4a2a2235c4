// Sign in, and join by an invitation whose secret is in the fragment of the address, which no server log sees.
"use strict";

(() => {
  const element = (id) => document.getElementById(id);

  async function post(path, body) {
    const response = await fetch(`/api${path}`, {
      method: "POST",
      credentials: "same-origin",
      headers: { "Content-Type": "application/json", "X-Form-Token": formToken },
      body: JSON.stringify(body),
    });
    const answer = response.status === 204 ? null : await response.json();
    if (!response.ok) {
      const retry = response.headers.get("Retry-After");
      const wait = response.status === 429 && retry ? ` Try again in ${retry} seconds.` : "";
      throw Object.assign(new Error(`${sentence(answer.problem, answer.parameter)}${wait}`), { kind: answer.kind });
    }
    return answer;
  }

  let formToken = "";

  function sentence(problem, parameter) {
    const text = parameter && !problem.startsWith("there") ? `${parameter} ${problem}` : problem;
    return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
  }

  function showProblem(problem) {
    element("problem").textContent = problem.message;
    element("problem").hidden = false;
  }

  /** Return the address to go on to: only paths of this service. */
  function nextAddress() {
    const next = new URLSearchParams(location.search).get("next") || "/";
    return /^\/(?![/\\])/.test(next) ? next : "/";
  }

  async function offerSingleSignOn(invitation) {
    const ways = await (await fetch("/api/sign-in", { credentials: "same-origin" })).json();
    const button = element("single-sign-on");
    button.hidden = !(ways.single_sign_on || ways.trusted_header);
    button.addEventListener("click", async () => {
      try {
        if (ways.trusted_header) {
          await post("/trusted-header/sign-in", { invitation });
          location.assign(nextAddress());
        } else {
          location.assign((await post("/single-sign-on/start", { invitation })).url);
        }
      } catch (problem) {
        showProblem(problem);
      }
    });
  }

  /** Send a form, then open the page that `send` returns, or the one that was asked for. */
  function onSubmit(form, send) {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      element("problem").hidden = true;
      try {
        location.assign((await send(new FormData(form))) || nextAddress());
      } catch (problem) {
        showProblem(problem);
      }
    });
  }

  function showInvalidLink() {
    element("join-title").textContent = "This link cannot be used";
    element("join-text").textContent =
      "It has expired, it has been used or revoked, or it is not complete. Ask the person who sent it for a new one.";
  }

  async function prepareJoin() {
    const invitation = location.hash.slice(1);
    const preview = await post("/join/preview", { invitation }).catch((problem) => {
      if (problem.kind !== "bad-invitation") throw problem;
      return null;
    });
    if (preview === null) {
      showInvalidLink();
      return;
    }
    const me = await fetch("/api/me", { credentials: "same-origin" });
    const { project_name: project, role } = preview;
    element("join-title").textContent = preview.is_password_link
      ? "Choose a new password"
      : project
        ? `Join ${project}`
        : "Become an administrator";
    element("join-text").textContent = project ? `You are invited as a ${role}.` : "";
    element("name-field").hidden = preview.is_password_link;
    element("name").required = !preview.is_password_link;
    element("join").hidden = false;
    if (me.ok && !preview.is_password_link) {
      const person = await me.json();
      formToken = person.form_token;
      element("use-account").textContent = `Join as ${person.name}`;
      element("use-account").hidden = false;
    }
    const page = project ? `/projects/${encodeURIComponent(project)}${role === "judge" ? "/judge" : ""}` : "/";
    const send = async (fields) => {
      const password = fields.get("password");
      if (preview.is_password_link) await post("/password-reset", { invitation, password });
      else await post("/join", { invitation, name: fields.get("name"), password });
      return page;
    };
    onSubmit(element("join"), send);
    element("use-account").addEventListener("click", () =>
      post("/join", { invitation }).then(() => location.assign(page), showProblem),
    );
    await offerSingleSignOn(invitation);
  }

  if (element("login")) {
    onSubmit(element("login"), async (fields) => {
      await post("/login", { name: fields.get("name"), password: fields.get("password") });
    });
    offerSingleSignOn(null).catch(showProblem);
  } else {
    prepareJoin().catch(showProblem);
  }
})();
