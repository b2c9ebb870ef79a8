// Package preauth keeps strangers from holding a server's port: whoever connects is on probation until a request of
// theirs has been authenticated.
//
//	accepted --> handshaking --> silent --> asking --> known
//	                  |            | ^        |
//	                  v            v |        v
//	                closed       closed <-- refused
//
// It guarantees, whatever the HTTP server above it does or waits for:
//   - a connection on probation is closed when its client has not begun the last flight of the TLS handshake within
//     Limits.Handshake, nor sent the whole header of a request within Limits.Header, both since it was accepted, and
//     Limits.Idle after the last request on it that was refused (or was anonymous);
//   - no more than Limits.PerSource connections of one address are on probation, and no more than Limits.Total in all:
//     before one more is served, the one is closed that has been idle for longest.
//
// A connection that is known is as any other: how long it may be idle is for the server to say, and it counts for nothing
// here.
package preauth
