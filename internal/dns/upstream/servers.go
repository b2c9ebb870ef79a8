package upstream

import (
	"bufio"
	"bytes"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// defaultPort is that of DNS.
const defaultPort = 53

// maxServers bounds how many are asked for one answer.
const maxServers = 8

// servers are whom to ask, in order: those of the configuration, or those of the host's resolv.conf, which is read again when it has changed.
type servers struct {
	fixed []netip.AddrPort
	file  string
	// own are the addresses of this DNS, which would ask itself.
	own []netip.Addr

	mu   sync.Mutex
	seen stamp
	read []netip.AddrPort
	// late is until when a server that did not answer is asked last.
	late map[netip.AddrPort]time.Time
}

// stamp tells one state of a file from another.
type stamp struct {
	modified time.Time
	size     int64
	inode    uint64
}

// list returns whom to ask, those that answer first.
func (s *servers) list(now time.Time) []netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.fixed
	if len(all) == 0 {
		s.readFile()
		all = s.read
	}
	if len(s.late) == 0 {
		return all
	}
	ordered := slices.Clone(all)
	slices.SortStableFunc(ordered, func(a, b netip.AddrPort) int {
		return order(now.Before(s.late[a]), now.Before(s.late[b]))
	})
	return ordered
}

func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// readFile is called with the lock held. A file that cannot be read leaves what is known.
func (s *servers) readFile() {
	now, err := stampOf(s.file)
	if err != nil || now == s.seen {
		return
	}
	raw, err := os.ReadFile(s.file)
	if err != nil {
		return
	}
	s.seen, s.late = now, nil
	s.read = ParseResolvConf(raw, s.own)
}

// lateTime is for how long a server that did not answer is asked last.
const lateTime = 10 * time.Second

// note remembers whether a server answered.
func (s *servers) note(server netip.AddrPort, answered bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if answered {
		delete(s.late, server)
		return
	}
	if s.late == nil {
		s.late = map[netip.AddrPort]time.Time{}
	}
	s.late[server] = now.Add(lateTime)
}

// ParseResolvConf are the name servers of a resolv.conf (resolv.conf(5)), without those at the given addresses. Where it names none at all,
// that is the host itself.
func ParseResolvConf(raw []byte, without []netip.Addr) []netip.AddrPort {
	var all []netip.AddrPort
	named := false
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		a, err := netip.ParseAddr(fields[1])
		if err != nil {
			continue
		}
		named = true
		if a = a.Unmap(); !slices.Contains(without, a) && len(all) < maxServers {
			all = append(all, netip.AddrPortFrom(a, defaultPort))
		}
	}
	if !named {
		all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), defaultPort))
	}
	return all
}
