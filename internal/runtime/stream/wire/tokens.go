package wire

import (
	"container/list"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

const (
	// tokenLife is how long a URL may be used.
	tokenLife = time.Minute
	// maxTokens bounds the URLs that wait for their client.
	maxTokens = 1000
)

// ticket is what a token stands for.
type ticket struct {
	token   string
	kind    string // the first part of the URL's path
	serve   func(*session)
	expires time.Time
}

// tokens are the URLs that were given out and not used yet.
type tokens struct {
	mu    sync.Mutex
	known map[string]*list.Element // of order
	order list.List                // of tickets, the oldest first
}

// add makes a token. When too many are waiting it is errdefs.ErrResourceExhausted.
func (t *tokens) add(kind string, serve func(*session), now time.Time) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := t.order.Front(); e != nil && !now.Before(e.Value.(ticket).expires); e = t.order.Front() {
		t.remove(e)
	}
	if t.order.Len() >= maxTokens {
		return "", fmt.Errorf("%d streams are prepared and were not opened yet: open them, or wait until they expire (%v): %w", maxTokens, tokenLife, errdefs.ErrResourceExhausted)
	}
	if t.known == nil {
		t.known = map[string]*list.Element{}
	}
	token := rand.Text() // 128 bits and more
	t.known[token] = t.order.PushBack(ticket{token: token, kind: kind, serve: serve, expires: now.Add(tokenLife)})
	return token, nil
}

// take uses a token up.
func (t *tokens) take(kind, token string, now time.Time) (serve func(*session), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.known[token]
	if e == nil || e.Value.(ticket).kind != kind {
		return nil, false
	}
	found := t.remove(e)
	return found.serve, now.Before(found.expires)
}

func (t *tokens) remove(e *list.Element) ticket {
	gone := t.order.Remove(e).(ticket)
	delete(t.known, gone.token)
	return gone
}
