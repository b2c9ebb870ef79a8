package pressure

import (
	"testing"

	"monopod.dev/monopod/internal/host/usage"
)

func TestShortages(t *testing.T) {
	const mebi, gibi = 1 << 20, 1 << 30
	for name, c := range map[string]struct {
		change func(m *Measured)
		want   Shortages
	}{
		"enough":                  {func(*Measured) {}, Shortages{}},
		"memory at the floor":     {func(m *Measured) { m.Memory.Available = 100 * mebi }, Shortages{}},
		"memory":                  {func(m *Measured) { m.Memory.Available = 100*mebi - 1 }, Shortages{Memory: "99 MiB of memory are available, fewer than 100"}},
		"a tenth of a small disk": {func(m *Measured) { m.Disk.Capacity, m.Disk.Available = 5*gibi, 500*mebi }, Shortages{Disk: "500 MiB are free on the file system of /data"}},
		"a gibibyte of a large":   {func(m *Measured) { m.Disk.Capacity, m.Disk.Available = 100*gibi, gibi }, Shortages{}},
		"less than that":          {func(m *Measured) { m.Disk.Capacity, m.Disk.Available = 100*gibi, gibi-1 }, Shortages{Disk: "1023 MiB are free on the file system of /data"}},
		"inodes":                  {func(m *Measured) { m.Disk.InodesFree = 49 }, Shortages{Disk: "49 of 1000 inodes are free on the file system of /data"}},
		"no number of inodes":     {func(m *Measured) { m.Disk.Inodes, m.Disk.InodesFree = 0, 0 }, Shortages{}},
		"threads":                 {func(m *Measured) { m.Threads = 32000 }, Shortages{PIDs: "32000 threads are running, and the kernel has 32768 process ids"}},
		"no number of threads":    {func(m *Measured) { m.Threads, m.MaxThreads = 9, 0 }, Shortages{}},
	} {
		m := Measured{
			Memory: usage.Memory{Total: 8 * gibi, Available: 4 * gibi}, Disk: usage.Disk{Capacity: 10 * gibi, Available: 5 * gibi, Inodes: 1000, InodesFree: 500},
			Threads: 80, MaxThreads: 32768, Dir: "/data",
		}
		c.change(&m)
		if got := m.Shortages(); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestMeasure: this machine has something of all.
func TestMeasure(t *testing.T) {
	m, err := Measure(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if m.Memory.Available == 0 || m.Memory.Available > m.Memory.Total || m.Threads == 0 || m.MaxThreads == 0 || m.Disk.Capacity == 0 || m.Dir == "" {
		t.Errorf("%+v", m)
	}
	if _, err := Measure("/proc/none"); err == nil {
		t.Error("a folder that there is not was measured")
	}
}
