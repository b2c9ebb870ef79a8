package kinds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"monopod.dev/monopod/internal/host/mount"
)

// TestSilentServers: however many shares pods want of servers that are silent, few threads wait for them; the others are told so, and have their turn when a server answers.
func TestSilentServers(t *testing.T) {
	answer := make(chan struct{})
	var waiting atomic.Int64
	began := make(chan struct{}, 10*nfsCalls)
	s := newNFSServers()
	s.negotiate = func(string, []string) (*mount.Detached, error) {
		waiting.Add(1)
		defer waiting.Add(-1)
		began <- struct{}{}
		<-answer
		return nil, errors.New("it answers")
	}
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	ask := func(server string, share int) {
		_, err := s.ask(ctx, server, fmt.Sprintf("%s:/%d", server, share), nil)
		errs <- err
	}
	for i := range 3 * nfsCallsOfServer {
		go ask("one", i)
	}
	for range nfsCallsOfServer {
		<-began
	}
	for server := range 2 * nfsCalls / nfsCallsOfServer {
		for i := range nfsCallsOfServer {
			go ask(fmt.Sprint("other", server), i)
		}
	}
	for range nfsCalls - nfsCallsOfServer {
		<-began
	}
	cancel()
	said := map[string]int{}
	for range 3*nfsCallsOfServer + 2*nfsCalls {
		said[(<-errs).Error()]++
	}
	if n := waiting.Load(); n != nfsCalls {
		t.Errorf("%d calls wait for servers", n)
	}
	ofServer, ofAll := fmt.Sprintf("%d calls wait for the server's answer already; it is tried again", nfsCallsOfServer), fmt.Sprintf("%d calls wait for the answers of servers already; it is tried again", nfsCalls)
	if said[ofServer] != 2*nfsCallsOfServer || said["the server does not answer: context canceled"] != nfsCalls || said[ofAll] != nfsCalls+nfsCallsOfServer {
		t.Errorf("said: %v", said)
	}
	// Nobody waits for them any more, and still they are counted: until the kernel answers.
	if _, err := s.ask(ctx, "one", "one:/new", nil); err == nil || err.Error() != ofServer {
		t.Errorf("got %v", err)
	}
	close(answer)
	if _, err := s.ask(t.Context(), "one", "one:/new", nil); err == nil || !strings.Contains(err.Error(), "it answers") {
		t.Errorf("got %v", err)
	}
}
