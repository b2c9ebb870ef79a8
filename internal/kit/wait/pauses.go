package wait

import (
	"context"
	"time"
)

// Pauses stand between tries of what fails, or ends too soon: each is twice as long as the one before, from Least to Most. When a try has lasted for longer than Most they begin
// anew. They are for one goroutine.
type Pauses struct {
	Least, Most time.Duration

	next  time.Duration
	ended time.Time // the last pause: a try has run since
}

// For waits for the next pause, or for the end of ctx, whose cause it returns then.
func (p *Pauses) For(ctx context.Context) error {
	if p.next == 0 || time.Since(p.ended) > p.Most {
		p.next = p.Least
	}
	err := For(ctx, p.next)
	p.next, p.ended = min(2*p.next, p.Most), time.Now()
	return err
}
