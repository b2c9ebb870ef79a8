package preauth

import (
	"cmp"
	"time"
)

// Limits are what strangers get. A field that is zero has its default.
type Limits struct {
	// Handshake is until when, after the connection was accepted, the last flight of the TLS handshake begins (10 s).
	Handshake time.Duration
	// Header is until when, after the connection was accepted, the header of the first request is whole (32 s, which is
	// also what the API server's library gives each later one).
	Header time.Duration
	// Idle is how long a connection is kept for the next request when one was refused (30 s).
	Idle time.Duration
	// PerSource is how many connections of one address may be on probation (256). The addresses of an IPv6 /64 are one:
	// whoever has one of them has them all.
	PerSource int
	// Total is how many connections may be on probation in all (1024): few enough for the file descriptors that a process
	// has at the least (4096 on today's distributions), for two servers in one process.
	Total int
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Handshake: cmp.Or(l.Handshake, 10*time.Second),
		Header:    cmp.Or(l.Header, 32*time.Second),
		Idle:      cmp.Or(l.Idle, 30*time.Second),
		PerSource: cmp.Or(l.PerSource, 256),
		Total:     cmp.Or(l.Total, 1024),
	}
}
