package stdio

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

const (
	// backlog bounds what is kept for a client that is slower than the container, in bytes a stream.
	backlog = 1 << 20
	// finishTimeout bounds how long a client may take for the rest when the container has ended.
	finishTimeout = 10 * time.Second
)

// client is an attached reader of output.
type client struct {
	name    string
	outlets map[string]*outlet
	ended   chan struct{} // closed when no more output comes
	endOnce sync.Once
	slow    chan struct{} // closed when the client has fallen behind
	onSlow  sync.Once
}

func newClient(a Attachment) *client {
	c := &client{name: a.Name, outlets: map[string]*outlet{}, ended: make(chan struct{}), slow: make(chan struct{})}
	for name, f := range map[string]*os.File{Stdout: a.Stdout, Stderr: a.Stderr} {
		if f != nil {
			c.outlets[name] = newOutlet(f)
		}
	}
	return c
}

// offer never waits.
func (c *client) offer(name string, p []byte) {
	if o := c.outlets[name]; o != nil && !o.put(p) {
		c.onSlow.Do(func() { close(c.slow) })
	}
}

func (c *client) finish() { c.endOnce.Do(func() { close(c.ended) }) }

// run returns when the client is done with.
func (c *client) run(ctx context.Context) error {
	defer c.close()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.slow:
		return fmt.Errorf("%w: the client was more than %d bytes behind the container's output", errdefs.ErrResourceExhausted, backlog)
	case <-c.ended:
	}
	deadline := time.After(finishTimeout)
	for _, o := range c.outlets {
		o.finish()
		select {
		case <-o.done:
		case <-deadline:
			return fmt.Errorf("%w: the client did not read the rest within %s", errdefs.ErrResourceExhausted, finishTimeout)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (c *client) close() {
	for _, o := range c.outlets {
		o.close()
	}
}

// outlet writes one stream to a client through a bounded buffer.
type outlet struct {
	f    *os.File
	done chan struct{} // closed when the writer has ended
	wake chan struct{} // buffered 1

	mu       sync.Mutex
	buf      []byte
	finished bool            // no more is put
	broken   bool            // the client is gone: what is put is dropped
	writing  bool            // the writer has taken what is not written yet
	waits    []chan struct{} // are closed when all is written
}

func newOutlet(f *os.File) *outlet {
	o := &outlet{f: f, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	go o.write()
	return o
}

// put reports false when the buffer is full.
func (o *outlet) put(p []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.broken {
		return true
	}
	if len(o.buf)+len(p) > backlog {
		return false
	}
	o.buf = append(o.buf, p...)
	o.poke()
	return true
}

// idle returns a channel that is closed when all that has been put is written, or will never be.
func (o *outlet) idle() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	ch := make(chan struct{})
	o.waits = append(o.waits, ch)
	o.rest()
	return ch
}

// rest tells those who wait for it that all is written, if it is. The caller holds mu.
func (o *outlet) rest() {
	if !o.broken && (o.writing || len(o.buf) > 0) {
		return
	}
	for _, ch := range o.waits {
		close(ch)
	}
	o.waits = nil
}

func (o *outlet) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finished = true
	o.poke()
}

func (o *outlet) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// close ends the writer, also one that waits for the client.
func (o *outlet) close() {
	o.f.Close()
	o.mu.Lock()
	o.broken, o.finished, o.buf = true, true, nil
	o.rest()
	o.poke()
	o.mu.Unlock()
	<-o.done
}

func (o *outlet) write() {
	defer close(o.done)
	defer o.f.Close()
	for range o.wake {
		for {
			o.mu.Lock()
			p, finished := o.buf, o.finished
			o.buf, o.writing = nil, len(o.buf) > 0
			o.rest()
			o.mu.Unlock()
			if len(p) == 0 {
				if finished {
					return
				}
				break
			}
			if _, err := o.f.Write(p); err != nil {
				o.mu.Lock()
				o.broken, o.buf = true, nil
				o.rest()
				o.mu.Unlock()
				return
			}
		}
	}
}
