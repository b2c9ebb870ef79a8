package nodeusage

import (
	"fmt"
	"testing"
	"time"
)

const told = `# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total %[1]d 1%[1]d000
node_memory_working_set_bytes 1e+09 110000
container_cpu_usage_seconds_total{container="a",namespace="ns",pod="p"} %[1]d.5 1%[1]d000
container_memory_working_set_bytes{container="a",namespace="ns",pod="p"} 2048 110000
container_start_time_seconds{container="a",namespace="ns",pod="p"} 50
container_cpu_usage_seconds_total{container="half",namespace="ns",pod="p"} 1 110000
pod_cpu_usage_seconds_total{namespace="ns",pod="p"} 1 110000
resource_scrape_error 0
`

func sampleAt(t *testing.T, n int) sample {
	t.Helper()
	s, err := parse([]byte(fmt.Sprintf(told, n)), time.Unix(500, 0))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestUsage(t *testing.T) {
	u := usage(sampleAt(t, 10), sampleAt(t, 12))
	if want := (Used{time.UnixMilli(112000), 2 * time.Second, 1e9, 1e9}); u.Node == nil || *u.Node != want {
		t.Errorf("node %+v, want %+v", u.Node, want)
	}
	pod := u.Containers[PodKey{"ns", "p"}]
	if want := (Used{time.UnixMilli(112000), 2 * time.Second, 1e9, 2048}); len(pod) != 1 || pod["a"] != want {
		t.Errorf("pod %+v, want %+v of its only container that was told of completely", pod, want)
	}
	untimed, err := parse([]byte("node_cpu_usage_seconds_total 1\nnode_memory_working_set_bytes 1\n"), time.Unix(500, 0))
	if err != nil || !untimed.node.at.Equal(time.Unix(500, 0)) {
		t.Errorf("without a time: %+v, %v", untimed.node, err)
	}
	if _, err := parse([]byte("<html>no</html>"), time.Time{}); err == nil {
		t.Error("a page is read as metrics")
	}
}

func TestBetween(t *testing.T) {
	at := func(seconds, start int64, cpu float64) point {
		p := point{at: time.Unix(seconds, 0), cpu: cpu, memory: 7, hasCPU: true, hasMemory: true}
		if start > 0 {
			p.start = time.Unix(start, 0)
		}
		return p
	}
	for name, c := range map[string]struct {
		old, now point
		want     Used
		ok       bool
	}{
		"runs on":                      {at(100, 50, 10), at(110, 50, 15), Used{time.Unix(110, 0), 10 * time.Second, 5e8, 7}, true},
		"idle":                         {at(100, 0, 10), at(110, 0, 10), Used{time.Unix(110, 0), 10 * time.Second, 0, 7}, true},
		"restarted":                    {at(100, 50, 10), at(110, 105, 1), Used{time.Unix(110, 0), 5 * time.Second, 2e8, 7}, true},
		"restarted, and used more":     {at(100, 50, 1), at(110, 106, 4), Used{time.Unix(110, 0), 4 * time.Second, 1e9, 7}, true},
		"began since":                  {point{}, at(110, 108, 1), Used{time.Unix(110, 0), 2 * time.Second, 5e8, 7}, true},
		"a first sample of old":        {point{}, at(110, 0, 1), Used{}, false},
		"began just now":               {point{}, at(110, 110, 1), Used{}, false},
		"read once":                    {at(110, 50, 1), at(110, 50, 1), Used{}, false},
		"gone back for unknown reason": {at(100, 0, 10), at(110, 0, 5), Used{}, false},
		"gone":                         {at(100, 0, 10), point{}, Used{}, false},
	} {
		if got, ok := between(c.old, c.now); got != c.want || ok != c.ok {
			t.Errorf("%s: %+v, %v, want %+v, %v", name, got, ok, c.want, c.ok)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(told, 10)))
	f.Add([]byte("node_cpu_usage_seconds_total NaN 1\ncontainer_start_time_seconds{container=\"a\"} +Inf\n"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		s, err := parse(text, time.Unix(500, 0))
		if err != nil {
			return
		}
		usage(sample{}, s)
		usage(s, s)
	})
}
