package contract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"monopod.dev/monopod/examples/deviceplugin/emulator"
	"monopod.dev/monopod/internal/devices/contract/judge"
)

// build builds the emulated plugin.
func build(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	path := filepath.Join(t.TempDir(), "deviceplugin")
	cmd := exec.Command("go", "build", "-o", path, "monopod.dev/monopod/examples/deviceplugin")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// TestUntilRetry: who gives the steps more time than usual gives it to a plugin that was refused as well.
func TestUntilRetry(t *testing.T) {
	for step, want := range map[time.Duration]time.Duration{time.Second: 35 * time.Second, DefaultTimeout: 35 * time.Second, 2 * time.Minute: 2*time.Minute + 5*time.Second} {
		if got := usual.untilRetry(step); got != want {
			t.Errorf("steps of %s: %s, want %s", step, got, want)
		}
	}
}

// TestPlugins runs the emulated plugin, in good and in bad ways, and looks at what the report says is wrong. Nothing may be left.
func TestPlugins(t *testing.T) {
	path := build(t)
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	cdi := t.TempDir()
	spec := `{"cdiVersion": "0.6.0", "kind": "example.com/emulated", "devices": [{"name": "dev-0", "containerEdits": {"env": ["A=1"]}}, {"name": "dev-1", "containerEdits": {"env": ["A=2"]}}]}`
	if err := os.WriteFile(filepath.Join(cdi, "emulated.json"), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	_, hadKubelet := os.Stat("/var/lib/kubelet")

	// Plugins are waited for more than they work: more of them at a time than there are processors.
	var wg sync.WaitGroup
	defer wg.Wait()
	room := make(chan struct{}, 12)
	for name, c := range cases {
		one := func(t *testing.T) {
			timeout, at := 60*time.Second, usual
			at.refused = 100 * time.Millisecond // the emulated plugin tries again after a second
			if c.hangs {
				timeout, at.node = 3*time.Second, 0
			}
			if c.notices {
				at.sign = 60 * time.Second
			}
			report := try(t, Config{Command: append([]string{path}, c.args(name)...), CDIDirs: []string{cdi}, Timeout: timeout}, at)
			expect(t, report, judge.Fail, c.fail, c.hangs)
			if c.mayWarn != "" && slices.ContainsFunc(report.Checks, func(k judge.Check) bool { return k.Name == c.mayWarn && k.Verdict == judge.Warn }) {
				c.warn = append(c.warn, c.mayWarn)
			}
			expect(t, report, judge.Warn, c.warn, c.hangs)
			for name, part := range c.says {
				found := slices.ContainsFunc(report.Checks, func(c judge.Check) bool { return c.Name == name && strings.Contains(c.Found, part) })
				if !found {
					t.Errorf("no check %s says %q", name, part)
				}
			}
			if t.Failed() {
				t.Log(text(report))
			}
		}
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			t.Run(name, one)
		})
	}
	t.Cleanup(func() {
		if _, has := os.Stat("/var/lib/kubelet"); (has == nil) != (hadKubelet == nil) {
			t.Errorf("/var/lib/kubelet on the host: before: %v, after: %v", hadKubelet, has)
		}
	})
}

// plug is a case: what must be wrong, and nothing else. A step of one that hangs is given up soon, so that on a slow machine others may be, too.
type plug struct {
	flags      string
	fail, warn []string
	mayWarn    string // a check that warns or not: the node may look before or after the plugin's next list
	says       map[string]string
	hangs      bool
	notices    bool // both signs of a node's start, however long it takes
}

var cases = map[string]plug{
	"good": {notices: true, says: map[string]string{"register/call": "example.com/emulated", "list/first": "2 devices, 2 of them healthy", "list/later": "none was sent", "answer/host-paths": "/dev/null",
		"restart/kubelet-socket": "noticed: ", "restart/own-socket": "noticed: ", "node/used": "2 healthy devices", "prefer/answers": "not offered", "end/signal": "exit status 0"}},
	"all that there is":  {flags: "--preferred --pre-start --numa 1 --devices 5", says: map[string]string{"prefer/fits": "answers fit", "start/answers": "3 calls", "list/topology": "told"}},
	"serves late":        {flags: "--register-before-serving"},
	"many devices":       {flags: "--devices 10000 --numa 1 --preferred", says: map[string]string{"list/size": "bytes", "allocate/each": "of the first of 10000"}},
	"one device":         {flags: "--devices 1", says: map[string]string{"allocate/several": "only one"}},
	"CDI":                {flags: "--cdi-kind example.com/emulated", says: map[string]string{"answer/cdi": "2 names"}},
	"CDI without a spec": {flags: "--cdi-kind example.com/other", fail: []string{"answer/cdi"}, says: map[string]string{"answer/cdi": "no CDI spec defines it in"}},
	"CDI name":           {flags: "--cdi-kind other", fail: []string{"answer/cdi", "node/used"}},
	"plugin watcher": {flags: "--registry /var/lib/kubelet/plugins_registry", says: map[string]string{"register/call": "plugin watcher", "restart/node": "told the plugin watcher again", "restart/serves": "the same 2 devices",
		"restart/refused": "the node comes to it", "node/used": "a path that only it sees"}},
	"only kubelet.sock":        {flags: "--ignore-own-socket", says: map[string]string{"restart/own-socket": "not noticed"}},
	"only its own socket":      {flags: "--ignore-kubelet-socket", says: map[string]string{"restart/kubelet-socket": "not noticed"}},
	"neither":                  {flags: "--ignore-kubelet-socket --ignore-own-socket", fail: []string{"restart/node"}, hangs: true},
	"no devices":               {flags: "--devices 0", warn: []string{"list/first"}},
	"old":                      {flags: "--no-options", warn: []string{"register/options"}},
	"version":                  {flags: "--api-version v9", fail: []string{"register/version", "node/used"}, hangs: true},
	"resource":                 {flags: "--resource gpu", fail: []string{"register/resource", "node/used"}, hangs: true},
	"options fail":             {flags: "--fail-options no", fail: []string{"register/options", "node/used"}, hangs: true},
	"options hang":             {flags: "--hang-options", fail: []string{"register/options"}, hangs: true},
	"allocate fails":           {flags: "--fail-allocate overheated", fail: []string{"allocate/one", "allocate/each", "allocate/several", "allocate/all", "node/used"}, says: map[string]string{"allocate/one": "overheated"}},
	"allocate hangs":           {flags: "--hang-allocate", fail: []string{"allocate/one", "node/used"}, hangs: true},
	"no response":              {flags: "--no-response", fail: []string{"answer/responses", "node/used"}, warn: []string{"allocate/containers", "allocate/unknown"}},
	"start fails":              {flags: "--pre-start --fail-pre-start no", fail: []string{"start/answers", "node/used"}},
	"start hangs":              {flags: "--pre-start --hang-pre-start", fail: []string{"start/answers"}, hangs: true},
	"never registers":          {flags: "--bad never-register", fail: []string{"register/call"}, hangs: true, says: map[string]string{"register/call": "serves emulator.sock"}},
	"ends":                     {flags: "--no-such-flag", fail: []string{"register/call"}, says: map[string]string{"register/call": "exit status 1"}},
	"not even a list":          {flags: "--bad no-list", fail: []string{"list/first"}, hangs: true},
	"one stream":               {flags: "--bad one-stream", fail: []string{"list/again"}, hangs: true},
	"stale socket":             {flags: "--bad stale-socket", fail: []string{"restart/serves"}, hangs: true},
	"hangs with advice":        {flags: "--bad hang-preferred", fail: []string{"prefer/answers"}, hangs: true},
	"does not end":             {flags: "--bad ignore-sigterm", fail: []string{"end/signal"}, hangs: true},
	"bad duplicate-id":         {fail: []string{"list/ids"}, warn: []string{"node/used"}},
	"bad empty-id":             {fail: []string{"list/ids"}, warn: []string{"node/used"}},
	"bad long-id":              {fail: []string{"list/ids"}, warn: []string{"node/used"}, says: map[string]string{"list/ids": "of 70"}},
	"bad health-word":          {fail: []string{"list/health"}, warn: []string{"node/used"}},
	"bad numa-node":            {fail: []string{"list/topology"}, warn: []string{"node/used"}},
	"bad negative-numa-node":   {warn: []string{"list/topology"}},
	"bad later-duplicate-id":   {fail: []string{"list/later"}, mayWarn: "node/used", says: map[string]string{"list/ids": "2 IDs", "list/later": "number 1 (as list/ids): an ID is in the list more than once"}},
	"bad later-numa-node":      {fail: []string{"list/later"}, mayWarn: "node/used", says: map[string]string{"list/topology": "none is told", "list/later": "number 1 (as list/topology): NUMA nodes that no machine has"}},
	"bad end-stream":           {fail: []string{"list/stream"}, hangs: true},
	"bad new-ids":              {fail: []string{"list/again", "restart/serves"}, hangs: true},
	"bad bad-env":              {fail: []string{"answer/envs", "node/used"}},
	"bad relative-path":        {fail: []string{"answer/paths", "node/used"}},
	"bad bad-permissions":      {fail: []string{"answer/permissions", "node/used"}},
	"bad missing-path":         {fail: []string{"answer/host-paths"}, says: map[string]string{"answer/host-paths": "/no-such-folder"}},
	"bad no-device-node":       {fail: []string{"answer/host-paths"}, says: map[string]string{"answer/host-paths": "is a file"}},
	"bad contradiction":        {fail: []string{"answer/usable", "node/used"}, warn: []string{"answer/paths"}},
	"bad changing-node":        {fail: []string{"allocate/same"}},
	"bad changing-env":         {warn: []string{"allocate/same"}, says: map[string]string{"allocate/same": "TICKET"}},
	"bad empty-answer":         {warn: []string{"answer/content"}},
	"bad accept-unknown":       {warn: []string{"allocate/unknown"}},
	"bad crash-unknown":        {fail: []string{"allocate/unknown", "allocate/odd", "run/alive"}, says: map[string]string{"allocate/unknown": "exit status 3", "node/used": "2 healthy devices"}},
	"bad preferred-foreign":    {fail: []string{"prefer/fits"}},
	"bad preferred-short":      {fail: []string{"prefer/fits"}},
	"bad preferred-forgets":    {fail: []string{"prefer/fits"}},
	"bad other-options":        {fail: []string{"register/options"}},
	"bad exit-on-restart":      {warn: []string{"restart/node"}},
	"bad leave-process":        {warn: []string{"end/processes"}, says: map[string]string{"end/processes": "(sleep)"}},
	"bad long-id,changing-env": {fail: []string{"list/ids"}, warn: []string{"allocate/same", "node/used"}},
}

// args are the plugin's arguments: a case that is called after a fault has that fault.
func (c plug) args(name string) []string {
	args := strings.Fields(c.flags)
	if bad, ok := strings.CutPrefix(name, "bad "); ok {
		args = append(args, "--bad", bad)
	}
	return args
}

// expect compares which checks have a verdict. at least: there may be others, too.
func expect(t *testing.T, r *Report, v judge.Verdict, want []string, atLeast bool) {
	t.Helper()
	var got []string
	for _, c := range r.Checks {
		if c.Verdict == v {
			got = append(got, c.Name)
		}
		if (c.Remedy == "") != (c.Verdict == judge.OK || c.Verdict == judge.Skip) || c.API == "" || c.Found == "" {
			t.Errorf("%s (%s): found %q, API %q, remedy %q", c.Name, c.Verdict, c.Found, c.API, c.Remedy)
		}
	}
	slices.Sort(got)
	got = slices.Compact(got)
	want = slices.Sorted(slices.Values(want))
	missing := slices.ContainsFunc(want, func(name string) bool { return !slices.Contains(got, name) })
	if missing || !atLeast && !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", v, got, want)
	}
}

func try(t *testing.T, cfg Config, at pace) *Report {
	t.Helper()
	var log bytes.Buffer
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	report, err := runAt(t.Context(), cfg, at)
	if err != nil {
		t.Errorf("Run: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the node's words:\n" + log.String())
		}
	})
	return report
}

func text(r *Report) string {
	var b strings.Builder
	p := Printer{W: &b}
	for _, c := range r.Checks {
		_ = p.Check(c)
	}
	_ = r.PrintEnd(&b)
	return b.String()
}

// TestSocketOfOneThatRuns: all that needs no registration is tried, the rest is reported as left out.
func TestSocketOfOneThatRuns(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	dir, err := os.MkdirTemp("", "ct")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := emulator.New(emulator.Config{Dir: dir, Resource: "example.com/x", NoRegistration: true, Devices: emulator.Devices(3, 0), Preferred: true})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	report := try(t, Config{Socket: p.Socket(), CDIDirs: []string{}, Timeout: 60 * time.Second}, usual)
	expect(t, report, judge.Fail, nil, false)
	expect(t, report, judge.Warn, nil, false)
	var skipped []string
	for _, c := range report.Checks {
		if c.Verdict == judge.Skip {
			skipped = append(skipped, c.Name)
		}
	}
	want := slices.Concat(ofRegistration, []string{"start/answers", "start/odd"}, ofRestarts, []string{"node/used"}, ofTheEnd)
	if !slices.Equal(skipped, want) {
		t.Errorf("skipped %q, want %q", skipped, want)
	}
	if len(report.Resources) != 1 || report.Resources[0].Healthy != 3 {
		t.Errorf("resources: %+v", report.Resources)
	}
	_, err = Run(t.Context(), Config{Socket: filepath.Join(dir, "none.sock"), Timeout: 50 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "none.sock") {
		t.Errorf("nobody at the socket: %v", err)
	}
}

// TestSeveralResources: each resource is tried, and named.
func TestSeveralResources(t *testing.T) {
	path := build(t)
	script := path + " --resource example.com/a --endpoint a.sock & " + path + " --resource example.com/b --endpoint b.sock --bad long-id & wait"
	at := usual
	at.settle = 10 * time.Second
	report := try(t, Config{Command: []string{"sh", "-c", script}, CDIDirs: []string{}, Timeout: 60 * time.Second}, at)
	expect(t, report, judge.Fail, []string{"list/ids"}, false)
	expect(t, report, judge.Warn, []string{"end/processes", "node/used"}, false) // the shell does not end its children
	if !strings.Contains(text(report), "FAIL  list/ids                example.com/b: ") || len(report.Resources) != 2 {
		t.Error(text(report))
	}
}

// TestGivenUp: a test that is interrupted, before or while the plugin is tried, leaves nothing, and blames nobody.
func TestGivenUp(t *testing.T) {
	path := build(t)
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	for at, command := range map[string][]string{"": {"sleep", "1000"}, "list/first": {path}, "restart/node": {path}, "restart/refused": {path}} {
		ctx, cancel := context.WithCancel(t.Context())
		cfg := Config{Command: command, Timeout: time.Hour, Tell: func(c judge.Check) {
			if c.Name == at {
				cancel()
			}
		}}
		if at == "" {
			time.AfterFunc(100*time.Millisecond, cancel)
		}
		report, err := Run(ctx, cfg)
		if !errors.Is(err, context.Canceled) || report.Count(judge.Fail)+report.Count(judge.Warn) != 0 {
			t.Errorf("%q: %v\n%s", at, err, text(report))
		}
		cancel()
	}
}

// A plugin that writes a CDI spec writes it into a folder of the test's, which begins as a copy of the host's.
func TestTheHostsSpecsStayAsTheyAre(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	name := fmt.Sprintf("monopod-contract-test-%d.json", os.Getpid())
	out := &strings.Builder{}
	script := "echo '{}' > /var/run/cdi/" + name + " && ls /var/run/cdi"
	_, err := Run(t.Context(), Config{Command: []string{"/bin/sh", "-c", script}, Timeout: 5 * time.Second, Output: out})
	if err != nil || !strings.Contains(out.String(), name) {
		t.Errorf("%v; the program said %q", err, out)
	}
	if _, err := os.Lstat("/var/run/cdi/" + name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the host has the file: %v", err)
		os.Remove("/var/run/cdi/" + name)
	}
}
