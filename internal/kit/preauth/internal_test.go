package preauth

import (
	"net"
	"testing"
)

func TestSourceOf(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.7:1":              "192.0.2.7/32",
		"[::ffff:192.0.2.7]:1":     "192.0.2.7/32",
		"[2001:db8:1:2:3:4:5:6]:1": "2001:db8:1:2::/64",
		"[fe80::1%lo]:1":           "fe80::/64",
		"[::1]:1":                  "::/64",
	} {
		tcp, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := sourceOf(tcp).String(); got != want {
			t.Errorf("%s is counted for %s, want %s", addr, got, want)
		}
	}
	if got := sourceOf(&net.UnixAddr{Name: "x", Net: "unix"}); got.IsValid() {
		t.Errorf("a socket is counted for %s", got)
	}
}

// What comes in pieces is what comes at once, whatever it is.
func FuzzRecords(f *testing.F) {
	hello := "\x16\x03\x01\x00\x04\x01\x00\x00\x00"
	for _, seed := range []string{"", hello, hello + "\x14\x03\x03\x00\x01\x01", hello + hello + "\x17\x03\x03\x00\x02", "\x16\x03\x01\x00\x00\x16", "GET / HTTP/1.1"} {
		f.Add([]byte(seed), uint8(1))
	}
	f.Fuzz(func(t *testing.T, sent []byte, piece uint8) {
		var whole, pieces records
		want := whole.read(sent)
		size := int(piece%16) + 1
		for begin := 0; begin < len(sent); begin += size {
			pieces.read(sent[begin:min(begin+size, len(sent))])
		}
		if pieces.last != want {
			t.Errorf("in pieces of %d: %v, at once: %v", size, pieces.last, want)
		}
	})
}

func TestLastFlight(t *testing.T) {
	hello := "\x16\x03\x01\x00\x04\x17\x14\x17\x14"
	for sent, want := range map[string]bool{
		hello:                                  false, // what is in a record is no header
		hello + "\x16\x03\x03":                 false,
		hello + "\x15\x03\x03\x00\x02\x02":     false,
		hello + "\x14":                         true,
		hello + "\x17":                         true,
		hello + "\x16\x03\x03\x00\x00\x14":     true,
		hello + hello + "\x14\x03\x03\x00\x01": true,
	} {
		var r records
		if got := r.read([]byte(sent)); got != want {
			t.Errorf("%q: %v, want %v", sent, got, want)
		}
	}
}
