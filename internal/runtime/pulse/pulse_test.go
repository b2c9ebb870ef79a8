package pulse

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
)

func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			mu    sync.Mutex // guards what follows
			takes time.Duration
			fails error
			asked int
		)
		set := func(d time.Duration, err error) {
			mu.Lock()
			defer mu.Unlock()
			takes, fails = d, err
		}
		p := New(Config{Fresh: 500 * time.Millisecond, Wait: 100 * time.Millisecond, Silence: time.Second, Limit: 3 * time.Second, Ask: func(ctx context.Context) error {
			mu.Lock()
			asked++
			d, err := takes, fails
			mu.Unlock()
			select {
			case <-time.After(d):
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}})
		// check fails the test unless the verdict, the number of questions and the time that it took are as said.
		check := func(what string, ok bool, questions int, most time.Duration) {
			t.Helper()
			begin := time.Now()
			err := p.Check(t.Context())
			mu.Lock()
			defer mu.Unlock()
			if (err == nil) != ok || asked != questions || time.Since(begin) > most {
				t.Errorf("%s: %v after %d questions in %v; want ok %v, %d questions, at most %v", what, err, asked, time.Since(begin), ok, questions, most)
			}
			if err != nil && fails == nil && !errdefs.IsUnavailable(err) {
				t.Errorf("%s: %v is not Unavailable", what, err)
			}
		}
		check("the first answer is waited for", true, 1, 0)
		check("and is fresh for a while", true, 1, 0)
		time.Sleep(600 * time.Millisecond)
		check("then somebody is asked again", true, 2, 0)

		set(time.Hour, nil)
		time.Sleep(600 * time.Millisecond)
		check("a silence begins: the last verdict counts", true, 3, 100*time.Millisecond)
		check("one question at a time", true, 3, 100*time.Millisecond)
		time.Sleep(900 * time.Millisecond)
		check("the silence is too long", false, 3, 100*time.Millisecond)
		time.Sleep(2 * time.Second)
		check("the question has ended with its limit", false, 3, 0)
		time.Sleep(600 * time.Millisecond)
		check("the next one is not answered either", false, 4, 100*time.Millisecond)

		set(0, nil)
		time.Sleep(4 * time.Second)
		check("there is an answer again", true, 5, 0)
		set(0, errors.New("I am ill"))
		time.Sleep(time.Second)
		check("an answer may be bad", false, 6, 0)

		// The question is nobody's own: whoever asks may go.
		set(50*time.Millisecond, nil)
		time.Sleep(time.Second)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Check(gone); err == nil {
			t.Error("the last verdict was bad, and who does not wait hears that")
		}
		time.Sleep(100 * time.Millisecond)
		check("its answer is there", true, 7, 0)
	})
}

func TestPulseThatNeverWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Fresh: time.Second, Wait: 100 * time.Millisecond, Silence: time.Second, Limit: 2 * time.Second, Ask: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		for i, want := range []time.Duration{time.Second, 0} { // the second asks nothing new, and the silence is too long already
			begin := time.Now()
			if err := p.Check(t.Context()); !errdefs.IsUnavailable(err) || time.Since(begin) != want {
				t.Errorf("call %d, while nobody has ever answered: %v after %v, want Unavailable after %v", i, err, time.Since(begin), want)
			}
		}
		time.Sleep(2 * time.Second) // the question ends with its limit
	})
}

func TestFirstAnswerIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Wait: 100 * time.Millisecond, Silence: time.Second, Limit: 2 * time.Second, Ask: func(context.Context) error {
			time.Sleep(900 * time.Millisecond)
			return nil
		}})
		if err := p.Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
