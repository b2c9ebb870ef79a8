package act

import (
	"strings"
	"testing"
)

func TestLasting(t *testing.T) {
	id := strings.Repeat("0a", 32)
	for words, want := range map[string]string{
		"container c: create container " + id + ": libcontainer create: it failed": "container c: create container: libcontainer create: it failed",
		id + " is gone": " is gone",
		`stderr: time="2026-11-28T20:41:14Z" level=fatal msg="failed"; time=2026-11-28T20:41:14.123Z level=info`:                `stderr: level=fatal msg="failed"; level=info`,
		"open /run/monopod/containers/" + id + "/rootfs/dev/x: no such file":                                                    "open /run/monopod/containers/ID/rootfs/dev/x: no such file",
		`{"id":"` + id + `","bundle":"/"}`:                                                                                      `{"id":"ID","bundle":"/"}`,
		"image docker.io/library/a@sha256:" + id + " is not there, " + strings.Repeat("a", 63) + ", " + strings.Repeat("a", 65): "image docker.io/library/a@sha256:" + id + " is not there, " + strings.Repeat("a", 63) + ", " + strings.Repeat("a", 65),
		"the downtime of the runtime, and uptime=4 s":                                                                           "the downtime of the runtime, and uptime=4 s",
	} {
		if got := lasting(words); got != want {
			t.Errorf("%s\n got %s\nwant %s", words, got, want)
		}
	}
}
