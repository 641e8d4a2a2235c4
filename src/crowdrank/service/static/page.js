// What all pages of signed-in people share: signing out.
"use strict";

document.getElementById("sign-out").addEventListener("click", async (event) => {
  const headers = { "X-Form-Token": event.target.dataset.formToken };
  await fetch("/api/logout", { method: "POST", credentials: "same-origin", headers });
  location.assign("/login");
});
