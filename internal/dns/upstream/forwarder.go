// Package upstream asks the host's own name servers what the cluster's DNS does not know, and keeps their answers for as long as they may be kept.
//
// It guarantees:
//   - a question that many ask at once is asked once;
//   - a question is answered, or found to have no answer, within Patience, whatever the servers do;
//   - what is kept, and how many questions are under way, is bounded;
//   - this DNS is never asked, where the host's resolv.conf names it.
//
// It does not validate signatures (DNSSEC): it passes them on.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"monopod.dev/monopod/internal/dns/message"
)

// Config says whom to ask.
type Config struct {
	// Servers are asked, in order; none: those of ResolvConf, as it is at the time.
	Servers    []netip.AddrPort
	ResolvConf string
	// Own are the addresses of this DNS.
	Own []netip.Addr
	// MaxUnderWay bounds the questions that are asked at a time; 0: 256.
	MaxUnderWay int
	// MaxEntries and MaxBytes bound what is kept; 0: 4096 and 4 MiB.
	MaxEntries, MaxBytes int
	Log                  *slog.Logger
}

// Patience bounds the search for an answer. Clients ask again after 5 seconds, by default.
const Patience = 4500 * time.Millisecond

// serverTime is how long one server has for one attempt.
const serverTime = 1500 * time.Millisecond

// Errors of Ask.
var (
	ErrBusy      = errors.New("too many questions are under way")
	ErrNoServers = errors.New("the host has no name servers but this one")
)

// Forwarder asks others. It is safe for concurrent use.
type Forwarder struct {
	cfg     Config
	servers servers
	cache   *cache

	mu       sync.Mutex
	underWay map[message.Key]*search
}

// search is a question that is under way.
type search struct {
	done  chan struct{}
	reply *message.Foreign
	err   error
}

// New makes a forwarder, which does nothing before it is asked.
func New(cfg Config) *Forwarder {
	if cfg.MaxUnderWay == 0 {
		cfg.MaxUnderWay = 256
	}
	if cfg.MaxEntries == 0 {
		cfg.MaxEntries = 4096
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 4 << 20
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Forwarder{
		cfg: cfg, cache: newCache(cfg.MaxEntries, cfg.MaxBytes), underWay: map[message.Key]*search{},
		servers: servers{fixed: cfg.Servers, file: cfg.ResolvConf, own: cfg.Own},
	}
}

// Cached returns an answer that is known, and how old it is.
func (f *Forwarder) Cached(q *message.Query) (*message.Foreign, time.Duration, bool) {
	return f.cache.get(q.Key(), time.Now())
}

// Ask returns the answer to a question, and how old it is. It waits for servers. The answer may be that of a server which failed, when all
// did.
func (f *Forwarder) Ask(ctx context.Context, q *message.Query) (*message.Foreign, time.Duration, error) {
	if reply, age, ok := f.Cached(q); ok {
		return reply, age, nil
	}
	k := q.Key()
	f.mu.Lock()
	s := f.underWay[k]
	if s != nil {
		f.mu.Unlock()
		select {
		case <-s.done:
			return s.reply, 0, s.err
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
	if len(f.underWay) >= f.cfg.MaxUnderWay {
		f.mu.Unlock()
		return nil, 0, ErrBusy
	}
	s = &search{done: make(chan struct{})}
	f.underWay[k] = s
	f.mu.Unlock()

	s.reply, s.err = f.search(ctx, q)
	if s.err == nil {
		f.cache.put(k, s.reply, time.Now())
	}
	f.mu.Lock()
	delete(f.underWay, k)
	f.mu.Unlock()
	close(s.done)
	return s.reply, 0, s.err
}

// search asks one server after another, until one knows, nobody is left, or time is up.
func (f *Forwarder) search(ctx context.Context, q *message.Query) (*message.Foreign, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	all := f.servers.list(time.Now())
	if len(all) == 0 {
		return nil, ErrNoServers
	}
	var failed *message.Foreign
	var last error
	const rounds = 2
	for range rounds {
		silent := 0
		for _, server := range all {
			reply, err := f.ask(ctx, server, q)
			if ctx.Err() != nil && err != nil {
				return failed, noAnswer(q, failed, err)
			}
			f.servers.note(server, err == nil, time.Now())
			switch {
			case err != nil:
				last = err
				silent++
			case reply.Failed():
				failed = reply
			default:
				return reply, nil
			}
		}
		if silent == 0 { // all have said that they cannot say
			break
		}
	}
	return failed, noAnswer(q, failed, last)
}

// noAnswer is an error unless a server has said at least that it failed.
func noAnswer(q *message.Query, failed *message.Foreign, last error) error {
	if failed != nil {
		return nil
	}
	return fmt.Errorf("no name server answers for %s: %w", q.Question.Name, last)
}

func (f *Forwarder) ask(ctx context.Context, server netip.AddrPort, q *message.Query) (*message.Foreign, error) {
	ctx, cancel := context.WithTimeout(ctx, serverTime)
	defer cancel()
	reply, err := exchange(ctx, server, q)
	if err != nil {
		f.cfg.Log.Debug("a name server does not answer", "server", server, "question", q.Question.Name, "error", err)
	}
	return reply, err
}
