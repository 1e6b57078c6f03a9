// Package authn finds out who sends an HTTP request and whether they have permission, by asking the API server: with a
// TokenReview for the token and a SubjectAccessReview for the requested access. The process decides nothing itself and
// needs no list of users.
//
// Invariants:
//
//   - Nobody is let in without an answer of the API server.
//   - Answers, positive or negative, are used for ten seconds; permission that is revoked at the API server is revoked
//     here within that time. A Reviewer that remembers (for metrics, which are needed most during an outage) uses them
//     for a minute, and positive ones for up to an hour while the API server cannot be asked.
//   - However many requests come, only a few reviews are requested at a time: strangers cannot use this server to
//     overload the API server.
//
// A token comes as "Authorization: Bearer TOKEN" or, since the API server's proxy removes that header, in the header
// Header. An endpoint behind that proxy should require its own audience: a token for it is useless elsewhere.
//
// Caller: app.
package authn
