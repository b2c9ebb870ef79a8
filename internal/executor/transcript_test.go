package executor_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// TestHandoverTranscript holds the steps of a handover, of all processes that have to do with it, in the order in which they happen: as it is meant, and
// when something fails at one of them. What each must come to is TestHandoverDies' to check.
func TestHandoverTranscript(t *testing.T) {
	for _, c := range []struct {
		name, what   string
		former, heir string // what is armed in either program
		becomes      bool   // the other program
	}{
		{"works", "The executor becomes another program.", "", "", true},
		{"not-prepared", "The keeper cannot make the other program ready: nothing has changed.", "executor/keeper/prepared=error", "", false},
		{"not-frozen", "The worker has stopped, and fails: it goes on.", "executor/worker/frozen=error", "", false},
		{"worker-killed", "The worker is killed when it has stopped: the next one is of the same program.", "executor/worker/frozen=kill", "", false},
		{"not-executed", "The keeper cannot become the other program: the worker goes on.", "executor/keeper/committed=error", "", false},
		{"given-back", "The other program fails before it has ended the former worker: it becomes the former program again.", "", "executor/keeper/retiring=error", false},
		{"given-back-late", "The other program fails when the former worker has been ended: the former program goes on with a new one.", "", "executor/keeper/retired=error", false},
		{"first-worker-killed", "The first worker of the other program is killed when it has all: the next one begins.", "", "executor/worker/begun=kill-once", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			arm := func(points string) string {
				if strings.HasSuffix(points, "=kill-once") {
					points += ":" + filepath.Join(t.TempDir(), "died")
				}
				return strings.Trim(points+",executor/...=tell", ",")
			}
			t.Setenv(failpoint.EnvVar, arm(c.former))
			n := newNode(t)
			n.start(n.bundle("runs", nil, "sleep", "1000"))
			if _, err := n.c.Create(n.ctx(), n.bundle("waits", nil, "true")); err != nil {
				t.Fatal(err)
			}
			n.run(n.bundle("ended", nil, "true"))
			log, other, before := filepath.Join(n.cfg.Dir, "log"), otherBuild(t), n.hello()
			from := fileSize(t, log)
			err := n.handOver(other, failpoint.EnvVar+"="+arm(c.heir))
			eventually(t, "one of the two serves", func() bool { return n.runs(other) == c.becomes && n.runs(binary) != c.becomes })
			after := n.hello()
			raw, rerr := os.ReadFile(log)
			if rerr != nil {
				t.Fatal(rerr)
			}
			p := people{build: before.Build, names: map[string]string{itoa(before.KeeperPID): "keeper", itoa(before.WorkerPID): "worker 1"}}
			steps := []string{"client: hands over"}
			steps = append(steps, p.steps(string(raw[from:]))...)
			answer := "client: the call has ended" // by the death of the former worker: whether it was done is to be seen
			if err != nil {
				answer = "client: it is not done: " + p.plain(err.Error())
			}
			steps = append(steps, answer, fmt.Sprintf("client: served by %s of the %s program", p.names[itoa(after.WorkerPID)], map[bool]string{true: "other", false: "former"}[c.becomes]))
			all, lerr := n.c.List(n.ctx())
			if lerr != nil {
				t.Fatal(lerr)
			}
			for _, id := range []ids.ContainerID{"ended", "runs", "waits"} {
				for _, s := range all {
					if s.ID == id {
						steps = append(steps, fmt.Sprintf("client: container %s: %s", s.ID, s.Phase))
					}
				}
			}
			golden(t, filepath.Join("testdata", "handover-"+c.name+".txt"), c.what+"\n\n"+strings.Join(steps, "\n")+"\n")
		})
	}
}

// golden compares a text with a file, or writes it there.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *rewrite {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (go test -run '^%s$' -rewrite writes it anew):\n%s\nwant\n%s", path, strings.Split(t.Name(), "/")[0], got, want)
	}
}

// people are the processes of an executor, as a reader tells them apart.
type people struct {
	build   string
	names   map[string]string // by pid
	workers int
}

var (
	attribute = regexp.MustCompile(`(\w+)=("(?:[^"\\]|\\.)*"|\S*)`)
	number    = regexp.MustCompile(`process \d+`)
)

// shown are the attributes of a line of the log that say what has happened, and do not differ from run to run.
var shown = []string{"container", "stage", "action", "holdings", "estate", "error"}

// steps reads the executor's log.
func (p *people) steps(log string) (steps []string) {
	p.workers = 1
	for line := range strings.Lines(log) {
		var role, pid, text string
		var rest []string
		if point, ok := strings.CutPrefix(line, "failpoint "); ok {
			name, who, _ := strings.Cut(strings.TrimSpace(point), " pid=")
			if name == "executor/worker/hello" || name == "executor/worker/ping" {
				continue // anybody may ask at any time
			}
			pid, text = who, "at "+name
		}
		for _, m := range attribute.FindAllStringSubmatch(line, -1) {
			key, value := m[1], p.plain(strings.Trim(m[2], `"`))
			switch {
			case key == "msg":
				text = value
			case key == "role":
				role = value
			case key == "pid" && pid == "":
				pid = value
			case key == "pid" && role == "keeper" && text == "worker started":
				p.workers++
				p.names[value] = fmt.Sprintf("worker %d", p.workers)
				rest = append(rest, p.names[value])
			case slices.Contains(shown, key) && value != "":
				rest = append(rest, key+" "+value)
			}
		}
		if strings.Contains(line, "OOM killer") {
			continue // of this host
		}
		steps = append(steps, pid+"\x00"+strings.Join(append([]string{text}, rest...), ", "))
	}
	return p.inOrder(steps)
}

// inOrder names the processes. A worker's first words may come before the keeper's that it has started it.
func (p *people) inOrder(steps []string) (named []string) {
	first := map[string]int{}
	for _, s := range steps {
		pid, text, _ := strings.Cut(s, "\x00")
		who := p.names[pid]
		if started, ok := strings.CutPrefix(text, "worker started, "); ok {
			if at, spoke := first[started]; spoke {
				named = slices.Insert(named, at, who+": "+text)
				continue
			}
		}
		if _, spoke := first[who]; !spoke {
			first[who] = len(named)
		}
		named = append(named, who+": "+text)
	}
	return named
}

// plain is a text without what differs from build to build, and from run to run.
func (p *people) plain(text string) string {
	return number.ReplaceAllString(strings.ReplaceAll(text, "build "+p.build, "build B"), "process N")
}
