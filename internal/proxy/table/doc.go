// Package table keeps what is planned for services (package plan) in the kernel's nftables.
//
// Everything that comes and goes with a service is an element of a set or a map; chains and rules there are a fixed few, and one for each number of endpoints
// that some service has. So a new connection costs the same few look-ups however many services there are, and a change of a service costs what that service
// has, in the kernel, too: there are no rules to be checked anew, nor verdicts to be followed.
//
// It guarantees:
//   - a change of a service, or of several, is one transaction: there is no moment with half of it;
//   - what the kernel has is the only state. Open reads it, and Apply changes what differs from what is wanted, nothing else;
//   - what somebody else takes away, adds or changes is put right at once (internal/host/ruleset);
//   - a service that the kernel refuses does not keep others from being served;
//   - Remove leaves nothing.
//
// testdata/transcript.txt has in words what the kernel is told when services and endpoints come and go.
package table
