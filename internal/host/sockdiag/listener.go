package sockdiag

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listening are the states of /proc/net's files that somebody takes packets from everybody in: TCP_LISTEN, and of UDP one that is not connected.
var listening = map[string]string{"tcp": "0A", "udp": "07"}

// Listener says in words which process listens at a port of this host, not counting loopback addresses, in the network namespace of the calling thread; empty: none
// does, or the protocol is neither tcp nor udp.
func Listener(protocol string, port uint16) string { return listener(protocol, port, false) }

// AnyListener is Listener of all addresses, the loopback ones too.
func AnyListener(protocol string, port uint16) string { return listener(protocol, port, true) }

func listener(protocol string, port uint16, loopback bool) string {
	state, known := listening[protocol]
	if !known {
		return ""
	}
	for _, suffix := range []string{"", "6"} {
		raw, err := os.ReadFile("/proc/thread-self/net/" + protocol + suffix)
		if err != nil {
			continue // no IPv6
		}
		for line := range strings.Lines(string(raw)) {
			if inode, ok := listenerOf(line, state, port, loopback); ok {
				return owner(inode)
			}
		}
	}
	return ""
}

// listenerOf reads a line of such a file (proc_net_tcp of the kernel's documentation): number, own address, other address, state, ..., inode. It is pure.
func listenerOf(line, state string, port uint16, loopback bool) (inode string, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 10 || fields[3] != state {
		return "", false
	}
	address, number, _ := strings.Cut(fields[1], ":")
	n, err := strconv.ParseUint(number, 16, 16)
	if err != nil || uint16(n) != port {
		return "", false
	}
	raw, err := hex.DecodeString(address)
	if err != nil || len(raw)%4 != 0 {
		return "", false
	}
	for i := 0; i < len(raw); i += 4 { // words in the host's order, written as numbers
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	ip, ok := netip.AddrFromSlice(raw)
	return fields[9], ok && (loopback || !ip.Unmap().IsLoopback())
}

// owner names the process that has a socket open.
func owner(inode string) string {
	processes, _ := filepath.Glob("/proc/[0-9]*/fd") // a pattern that is one
	for _, dir := range processes {
		files, err := os.ReadDir(dir)
		if err != nil {
			continue // it has ended
		}
		for _, f := range files {
			if to, err := os.Readlink(filepath.Join(dir, f.Name())); err != nil || to != "socket:["+inode+"]" {
				continue
			}
			process := filepath.Dir(dir)
			name, err := os.ReadFile(filepath.Join(process, "comm"))
			if err != nil {
				continue
			}
			return fmt.Sprintf("%s (process %s)", strings.TrimSpace(string(name)), filepath.Base(process))
		}
	}
	return "a process of the host"
}
