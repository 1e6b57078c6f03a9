// Package authn tells who sends an HTTP request and whether they may, by asking the API
// server: a TokenReview for the token, a SubjectAccessReview for what is asked for. The
// process decides nothing itself and needs no list of users.
//
// What holds:
//
//   - Without an answer of the API server nobody is let in.
//   - Answers, good and bad, are used for ten seconds; what is taken away at the API server
//     is taken away here within that time.
//   - However many requests come, only a few questions are asked at a time: strangers
//     cannot use this server to keep the API server busy.
//
// A token comes as "Authorization: Bearer TOKEN" or, since the proxy of the API server takes
// that header away, in the header Header. An endpoint behind that proxy should demand
// an audience of its own: a token for it is of no use elsewhere.
//
// Caller: app.
package authn
