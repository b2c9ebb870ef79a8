// Package contract runs a device plugin through what the kubelet's device plugin API (v1beta1) asks of it, and reports what it found: see
// docs/PLUGIN-AUTHORS.md.
//
// A command is started in a mount namespace of its own (package mountns), in which the folders of kubelets are ours: the host's are neither
// read nor changed, and a node that runs on the host does not notice. A plugin that runs already is tried at its socket, without what needs its
// registration. All that was started is ended, also when ctx ends before.
//
// The plugin's calls are real ones: devices are allocated, and made ready for starts, though no container is started.
package contract

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/devices/contract/judge"
	"monopod.dev/monopod/internal/devices/plugin"
)

// DefaultTimeout is what a step may take.
const DefaultTimeout = 30 * time.Second

// DefaultCDIDirs are the folders of CDI specs, as nodes have them.
var DefaultCDIDirs = []string{"/etc/cdi", "/var/run/cdi"}

// Config says what is tried, and how.
type Config struct {
	// Command starts the plugin, with its arguments. It runs as this process's user, which must be root.
	Command []string
	// Socket is the path of the socket of a plugin that runs; Command is empty then.
	Socket string
	// Timeout is what each call, and each wait for the plugin, may take; 0: 30 s.
	Timeout time.Duration
	// CDIDirs are the folders of CDI specs, the later wins; nil: /etc/cdi and /var/run/cdi.
	CDIDirs []string
	// Output gets what the command writes; nil: it is kept for the report only.
	Output io.Writer
	// Tell is called with each check when it is done; it may be nil.
	Tell func(judge.Check)
	// Log gets what the node's code says of the plugin; nil: nobody.
	Log *slog.Logger
}

// Resource is one resource of the plugin.
type Resource struct {
	Name string `json:"name"`
	// Socket is the plugin's, as it sees it.
	Socket  string `json:"socket"`
	Devices int    `json:"devices"`
	Healthy int    `json:"healthy"`
}

// Report is what was found.
type Report struct {
	Command   []string      `json:"command,omitempty"`
	Socket    string        `json:"socket,omitempty"`
	Resources []Resource    `json:"resources"`
	Checks    []judge.Check `json:"checks"`
	// Output are the last lines that the command wrote, where a check failed.
	Output []string `json:"output,omitempty"`
}

// Count is how many checks have the verdict.
func (r *Report) Count(v judge.Verdict) (n int) {
	for _, c := range r.Checks {
		if c.Verdict == v {
			n++
		}
	}
	return n
}

// run is one run, from the plugin's start to its end.
type run struct {
	*notes
	*stage
}

// pace is for how long it is waited for what need not come; tests have more time.
type pace struct {
	settle  time.Duration // for another resource to be registered
	sign    time.Duration // for one of the two signs of a node's start to be noticed, at least
	refused time.Duration // for a plugin that was refused: how often it tries again
	retry   time.Duration // the same, for it to try again at all, at least: NVIDIA's does after 30 s
	node    time.Duration // for the node to know all devices, at least: it waits for plugins to register by themselves before it gives them the second sign
}

var usual = pace{settle: 500 * time.Millisecond, sign: 2 * time.Second, refused: 2 * time.Second, retry: 35 * time.Second, node: 15 * time.Second}

// untilRetry is for how long a plugin that was refused may take to try again: who gives the steps more time than usual gives this one more, too.
func (p pace) untilRetry(step time.Duration) time.Duration {
	return p.retry + max(0, step-DefaultTimeout)
}

// Run tries a plugin. The error says why nothing, or not all, could be tried: the report has what was found until then. A plugin that breaks
// the contract is no error.
//
// Errors: errdefs.ErrInvalidArgument, ErrPermissionDenied (not root).
func Run(ctx context.Context, cfg Config) (*Report, error) { return runAt(ctx, cfg, usual) }

func runAt(ctx context.Context, cfg Config, pace pace) (*Report, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	if cfg.CDIDirs == nil {
		cfg.CDIDirs = DefaultCDIDirs
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	r := &run{
		notes: &notes{tell: cfg.Tell, over: ctx.Err, report: &Report{Command: cfg.Command, Socket: cfg.Socket, Resources: []Resource{}, Checks: []judge.Check{}}},
		stage: &stage{cfg: cfg, pace: pace},
	}
	switch {
	case len(cfg.Command) == 0 && cfg.Socket == "", len(cfg.Command) > 0 && cfg.Socket != "":
		return r.report, fmt.Errorf("either a command or a socket is tried: %w", errdefs.ErrInvalidArgument)
	case cfg.Timeout < 0:
		return r.report, fmt.Errorf("the time of a step is %s: it must not be negative: %w", cfg.Timeout, errdefs.ErrInvalidArgument)
	case cfg.Socket != "":
		return r.report, r.runSocket(ctx)
	}
	return r.report, r.runCommand(ctx)
}

var (
	ofRegistration = []string{"register/call", "register/version", "register/resource", "register/endpoint"}
	ofRestarts     = []string{"restart/node", "restart/serves", "restart/kubelet-socket", "restart/own-socket", "restart/refused"}
	ofTheEnd       = []string{"end/signal", "end/processes", "run/alive"}
)

// runSocket tries a plugin that runs.
func (r *run) runSocket(ctx context.Context) error {
	const why = "the plugin was started by somebody else: '-- COMMAND' tries this, too"
	r.skip("", why, ofRegistration...)
	s := &subject{socket: r.cfg.Socket}
	if call := r.reach(ctx, s.socket, r.cfg.Timeout); call.Failed() {
		return fmt.Errorf("nobody serves %s: %s", s.socket, call.Error)
	}
	(&trial{r.notes, r.stage, s}).try(ctx)
	r.report.Resources = append(r.report.Resources, s.summary(r.cfg.Socket))
	r.skip("", why, ofRestarts...)
	r.skip("", why, "node/used")
	r.skip("", why, ofTheEnd...)
	return ctx.Err()
}

// runCommand tries a plugin from its start to its end.
func (r *run) runCommand(ctx context.Context) (err error) {
	base, err := shortFolder()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(base)) }()
	place := place{plugins: filepath.Join(base, "d"), registry: filepath.Join(base, "r"), cdi: filepath.Join(base, "c")}
	if err := errors.Join(os.Mkdir(place.plugins, 0o750), os.Mkdir(place.registry, 0o750), os.Mkdir(place.cdi, 0o755), copySpecs(place.cdi)); err != nil { // the kubelet's mode
		return err
	}
	if r.desk, err = openDesk(ctx, place); err != nil {
		return err
	}
	defer func() { r.desk.close() }()
	began := time.Now()
	if r.program, err = start(r.cfg, place); err != nil {
		return err
	}
	defer func() {
		_, kerr := r.program.kill()
		err = errors.Join(err, kerr)
		if r.report.Count(judge.Fail) > 0 {
			r.report.Output = r.program.lastWords(20)
		}
	}()
	names := r.awaitStart(ctx, began)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(names) == 0 {
		r.report.Output = r.program.lastWords(20)
		return nil
	}
	subjects := r.registered(ctx, names)
	for _, s := range subjects {
		(&trial{r.notes, r.stage, s}).try(ctx)
		r.report.Resources = append(r.report.Resources, s.summary(filepath.Join(plugin.DefaultDir, filepath.Base(s.socket))))
	}
	(&nodeStarts{r.notes, r.stage, subjects}).try(ctx)
	r.end(ctx, began)
	return ctx.Err()
}

// awaitStart waits until the plugin has registered, and all its resources have.
func (r *run) awaitStart(ctx context.Context, began time.Time) []string {
	r.desk.await(ctx, r.cfg.Timeout, r.program.done(), func(all []registration) bool { return len(all) > 0 })
	waited := time.Since(began)
	if all := r.desk.list(0); len(all) > 0 {
		waited = all[0].at.Sub(began)
	}
	// A plugin may have several resources, which it registers one after the other.
	const most = 20
	for n, times := 0, 0; ctx.Err() == nil && len(r.desk.list(0)) > n && times < most; times++ {
		n = len(r.desk.list(0))
		r.desk.await(ctx, r.pace.settle, r.program.done(), func(all []registration) bool { return len(all) > n })
	}
	var names []string
	watched := false
	for _, reg := range r.desk.list(0) {
		if !slices.Contains(names, reg.resource) {
			names = append(names, reg.resource)
		}
		watched = watched || reg.watched
	}
	s := judge.Start{Waited: waited, Registered: names, Sockets: r.desk.sockets(), Watched: watched}
	if how, ended := r.program.ended(); ended {
		s.Ended = how
	}
	if ctx.Err() == nil {
		r.add(judge.Started(s))
	}
	return names
}

// registered judges the registrations, and makes what is tried of them.
func (r *run) registered(ctx context.Context, names []string) (all []*subject) {
	for _, name := range names {
		reg, _ := r.desk.latest(name, 0)
		reg = r.seen(reg)
		s := &subject{name: name, socket: reg.socket, watched: reg.watched, told: reg.options}
		call := r.reach(ctx, s.socket, r.cfg.Timeout)
		j := judge.Registration{Resource: name, Version: reg.version, Endpoint: reg.endpoint, Watched: reg.watched,
			VersionError: errorWords(plugin.CheckVersion(reg.versions()...)), ResourceError: errorWords(plugin.CheckResource(name)),
			Waited: call.Took, SocketError: call.Error}
		if reg.options != nil {
			j.Options = *reg.options
		}
		if !reg.watched {
			j.EndpointError = errorWords(plugin.CheckEndpoint(plugin.DefaultDir, reg.endpoint))
		}
		r.add(judge.Registered(j)...)
		all = append(all, s)
	}
	return all
}

func errorWords(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// end ends the plugin.
func (r *run) end(ctx context.Context, began time.Time) {
	if ctx.Err() != nil {
		return
	}
	if how, ended := r.program.ended(); ended {
		r.add(judge.Died("the last checks", how))
		r.skip("", "it ended before", "end/signal")
		return
	}
	ran := time.Since(began)
	asked := time.Now()
	e := judge.End{How: r.program.stop(ctx, r.cfg.Timeout), Took: time.Since(asked)}
	outlived, err := r.program.kill()
	if err != nil {
		r.cfg.Log.Warn("the plugin's processes", "error", err)
	}
	e.Outlived = outlived
	r.add(judge.Ends(e)...)
	if !r.died {
		r.add(judge.Lived(ran))
	}
}

// copySpecs gives the plugin the specs that the host has where plugins write theirs.
func copySpecs(to string) error {
	entries, err := os.ReadDir(cdiFolder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(cdiFolder, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has gone meanwhile
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, e.Name()), raw, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// shortFolder makes a temporary folder whose path leaves room for a socket's name: as much as kubelets' folder does.
func shortFolder() (string, error) {
	for _, in := range []string{os.TempDir(), "/tmp", "/run"} {
		if len(filepath.Join(in, "mp1234567890", "d")) > len(plugin.DefaultDir) {
			continue
		}
		if dir, err := os.MkdirTemp(in, "mp"); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no folder for sockets can be made in %s, /tmp or /run: set TMPDIR to one with a short path: %w", os.TempDir(), errdefs.ErrFailedPrecondition)
}
