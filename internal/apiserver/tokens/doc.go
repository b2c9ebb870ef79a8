// Package tokens makes and verifies the credentials of service accounts: JSON Web Tokens (RFC 7519) that the API server signs (ES256), with the claims of a
// Kubernetes API server, bound to a pod, a secret or a node, or to nothing but the service account.
//
// It guarantees that a token is good only while it has not ended, and while the service account, and what it is bound to, are there by their UIDs: that is
// looked up in the API server's caches for each request, so that a deletion ends a token at once. Only the signature, which cannot change its mind, is
// remembered.
//
// A token of a secret of the type kubernetes.io/service-account-token has no end: it is good as long as that secret holds it and the account is there.
//
// What others need to verify tokens by themselves is served as OpenID Connect has it (Discovery 1.0, sections 3 and 4; RFC 7517).
package tokens
