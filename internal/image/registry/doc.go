// Package registry asks registries, and the mirrors that hosts.toml files name, for images: what a reference means now, documents, and the bytes
// of blobs. It is built on containerd's resolver. It stores nothing.
//
// Registries are hostile, overloaded, or far away. It guarantees:
//   - credentials go only where they belong (Auth);
//   - a host that is overloaded, or breaks a connection, is asked again, with longer and longer pauses; a mirror is passed over instead;
//   - a host that sends nothing for the stall timeout, or something else than it should, ends the pull, or only its own part in it when another
//     host follows it;
//   - no answer takes more memory than what it is meant to hold;
//   - errors have a class (Classify), and name every host that was asked (Session.Explain).
package registry
