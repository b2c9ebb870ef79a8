package proc

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestReadOnlyMappings(t *testing.T) {
	const maps = `00400000-04c6f000 r-xp 00000000 fe:00 1001                               /opt/a b/monopod
04c6f000-09a11000 r--p 0486f000 fe:00 1001                               /opt/a b/monopod
09a11000-09bb1000 rw-p 09611000 fe:00 1001                               /opt/a b/monopod
09bb1000-09c00000 r--s 00000000 fe:00 1001                               /opt/a b/monopod
0a000000-0a100000 r--p 00000000 fe:00 1002                               /opt/a b/monopod2
c000000000-c000c00000 rw-p 00000000 00:00 0
7fff0000-7fff1000 r-xp 00000000 00:00 0                                  [vdso]
`
	want := []mapping{{0x400000, 0x4c6f000}, {0x4c6f000, 0x9a11000}}
	if got := readOnlyMappings(maps, "/opt/a b/monopod"); !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// After Slim less of the executable is resident, and all of it still works.
func TestSlim(t *testing.T) {
	raw, err := os.ReadFile("/proc/self/exe") // most of it is in the page cache now
	if err != nil || len(raw) == 0 {
		t.Fatal(err)
	}
	if err := Slim(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.ToUpper("it works"), "WORKS") {
		t.Error("it does not")
	}
}
