package nlsock

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Requests that come together are each carried out and answered, whatever becomes of the others.
func TestRequestsAreAnsweredTogether(t *testing.T) {
	s, err := Open(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ask := func(name string) Request {
		body := append(nl.NewIfInfomsg(unix.AF_UNSPEC).Serialize(), nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)).Serialize()...)
		return Request{What: "look up " + name, Type: unix.RTM_GETLINK, Body: body}
	}
	index := 0
	if err := s.Dump(ask("lo"), func(body []byte) { index++ }); err != nil || index != 1 {
		t.Errorf("%d answers, %v", index, err)
	}
	none := ask("no-such-link")
	none.MayBeGone = true
	if err := s.Do(ask("no-such-link"), none); !errors.Is(err, unix.ENODEV) {
		t.Errorf("an interface that is not there: %v", err)
	}
	if err := s.Do(none, none); err != nil {
		t.Errorf("one that need not be there: %v", err)
	}
}

// FuzzMessages: whatever comes, reading it ends.
func FuzzMessages(f *testing.F) {
	f.Add(Request{Type: unix.RTM_GETLINK, Body: nl.NewRtAttr(1, []byte("name")).Serialize()}.serialize(nil, 1))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_ = EachMessage(b, func(_ uint16, _ uint32, body []byte) { EachAttr(body, func(uint16, []byte) {}) })
	})
}
