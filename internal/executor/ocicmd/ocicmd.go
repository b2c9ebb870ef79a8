//go:build cgo

// Package ocicmd is the command line of an OCI runtime that is made of libcontainer: as much of it as the worker asks for, in a process of its own. So
// what libcontainer does about a container (its mounts, its hooks, its files) is bounded in time and can be killed, and it happens in no memory
// that has other containers' secrets.
//
//	monopod-executor oci --root DIR --log FILE COMMAND
//
//	create --bundle DIR --hooks-bundle DIR --pid-file FILE [--console-socket PATH] ID
//	start ID
//	exec --process FILE --detach --pid-file FILE [--console-socket PATH] ID
//	delete --force ID
//	state ID
//	executable --bundle DIR | --process FILE --pid PID
//
// The last is of our own: it tells whether a process's program may be there to be executed. So is --hooks-bundle: the bundle that hooks are told, and in which
// those outside of the container run, when it is another one than the bundle that is read. Exit codes are 0; CodeProgram, when the container
// was complete and nothing but the program, or a poststart hook, was at fault; and 1 for all else, with the reason in the log, as runc writes it.
package ocicmd

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/specconv"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sirupsen/logrus"

	"monopod.dev/monopod/internal/kit/atomicfile"
)

// CodeProgram is the exit code of a command that failed for what is the start's to tell: the program is not there or cannot be executed (then
// shells have this code, too), or a poststart hook has failed.
const CodeProgram = 126

// errProgram says that the program is at fault.
var errProgram = errors.New("the program cannot be executed")

// command is a command line.
type command struct {
	root, log              string
	name, id               string
	bundle, hooksBundle    string
	process                string
	pidFile, consoleSocket string
	pid                    int
	logFormat              string
	detach, force          bool
}

// Main runs a command line, and returns its exit code.
func Main(args []string) int {
	c, err := parse(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	closeLog, err := c.openLog()
	if err == nil {
		err = c.run()
	}
	defer closeLog()
	if err == nil {
		return 0
	}
	logrus.Error(brief(err.Error()))
	var hook *hookError
	if errors.Is(err, errProgram) || errors.As(err, &hook) {
		return CodeProgram
	}
	return 1
}

// brief bounds a reason: hooks may write as much as they like, and all of it is in the error.
func brief(reason string) string {
	const most = 3 << 10 // bytes
	if len(reason) <= most {
		return reason
	}
	return strings.ToValidUTF8(reason[:most], "") + fmt.Sprintf("... (%d bytes)", len(reason))
}

func parse(args []string) (*command, error) {
	c := &command{}
	global := flag.NewFlagSet("oci", flag.ContinueOnError)
	global.SetOutput(io.Discard)
	global.StringVar(&c.root, "root", "", "directory of the containers' states")
	global.StringVar(&c.log, "log", "", "file to which errors are written")
	global.StringVar(&c.logFormat, "log-format", "json", "json")
	if err := global.Parse(args); err != nil {
		return nil, err
	}
	if global.NArg() == 0 || c.root == "" || c.logFormat != "json" {
		return nil, errors.New("want --root DIR, a log format of json, and a command")
	}
	c.name = global.Arg(0)
	own := flag.NewFlagSet(c.name, flag.ContinueOnError)
	own.SetOutput(io.Discard)
	own.StringVar(&c.bundle, "bundle", "", "directory with config.json")
	own.StringVar(&c.hooksBundle, "hooks-bundle", "", "directory with config.json that hooks are told")
	own.StringVar(&c.process, "process", "", "file with a process's specification")
	own.StringVar(&c.pidFile, "pid-file", "", "file for the pid")
	own.StringVar(&c.consoleSocket, "console-socket", "", "socket for the terminal's master")
	own.IntVar(&c.pid, "pid", 0, "a process whose root is looked at")
	own.BoolVar(&c.detach, "detach", false, "leave the process behind")
	own.BoolVar(&c.force, "force", false, "also what runs")
	if err := own.Parse(global.Args()[1:]); err != nil {
		return nil, err
	}
	c.id = own.Arg(0)
	if own.NArg() > 1 || c.id == "" && c.name != "executable" {
		return nil, fmt.Errorf("%s: want one container id, not %q", c.name, own.Args())
	}
	return c, nil
}

func (c *command) run() error {
	switch c.name {
	case "create":
		return c.create()
	case "start":
		lc, err := libcontainer.Load(c.root, c.id)
		if err != nil {
			return err
		}
		return lc.Exec()
	case "exec":
		return c.exec()
	case "delete":
		return c.delete()
	case "state":
		_, err := libcontainer.Load(c.root, c.id)
		return err
	case "executable":
		return c.executable()
	}
	return fmt.Errorf("command %q is not known", c.name)
}

// openLog has libcontainer, and this command, write to the log: standard error is the container's.
func (c *command) openLog() (closeLog func(), err error) {
	logrus.SetFormatter(&logrus.JSONFormatter{})
	logrus.SetLevel(logrus.WarnLevel)
	if c.log == "" {
		logrus.SetOutput(io.Discard)
		return func() {}, nil
	}
	f, err := os.OpenFile(c.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		logrus.SetOutput(io.Discard)
		return func() {}, err
	}
	logrus.SetOutput(f)
	return func() { f.Close() }, nil
}

func readJSON(path string, v any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// readSpec reads the bundle, whose paths are absolute.
func (c *command) readSpec() (*specs.Spec, error) {
	spec := &specs.Spec{}
	err := readJSON(filepath.Join(c.bundle, "config.json"), spec)
	if err == nil && (spec.Process == nil || spec.Root == nil || spec.Linux == nil) {
		err = fmt.Errorf("%s: process, root or linux is missing", c.bundle)
	}
	return spec, err
}

// create makes a container up to where its first process waits. What is left of one that fails is its caller's to delete.
func (c *command) create() error {
	spec, err := c.readSpec()
	if err != nil {
		return err
	}
	config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{CgroupName: c.id, Spec: spec})
	if err != nil {
		return err
	}
	if c.hooksBundle == "" {
		c.hooksBundle = c.bundle
	}
	if err := os.Chdir(c.hooksBundle); err != nil {
		return err
	}
	TellBundle(config, c.hooksBundle)
	if config.Seccomp, err = specconv.SetupSeccomp(spec.Linux.Seccomp); err != nil {
		return err
	}
	process, err := NewProcess(spec.Process)
	if err != nil {
		return err
	}
	process.Init = true
	done, err := c.giveStreams(process, spec.Process.Terminal)
	if err != nil {
		return err
	}
	defer done()
	hooks := takePoststart(config)
	lc, err := libcontainer.Create(c.root, c.id, config)
	if err != nil {
		return err
	}
	if err := lc.Start(process); err != nil {
		// libcontainer stores its state when the init is ready: all that is left after that is to become the user, and to find and execute the
		// program.
		if _, serr := os.Stat(filepath.Join(c.root, c.id, "state.json")); serr == nil {
			return fmt.Errorf("%w: %w", errProgram, err)
		}
		return err
	}
	if err := runPoststart(lc, hooks); err != nil {
		// As libcontainer does it; an error of either says that the process has ended by itself.
		_ = process.Signal(os.Kill)
		_, _ = process.Wait()
		return err
	}
	return c.leave(process)
}

func (c *command) exec() error {
	if !c.detach {
		return errors.New("exec: only with --detach")
	}
	var p specs.Process
	if err := readJSON(c.process, &p); err != nil {
		return err
	}
	lc, err := libcontainer.Load(c.root, c.id)
	if err != nil {
		return err
	}
	process, err := NewProcess(&p)
	if err != nil {
		return err
	}
	done, err := c.giveStreams(process, p.Terminal)
	if err != nil {
		return err
	}
	defer done()
	if err := lc.Start(process); err != nil {
		state, serr := lc.State()
		if serr == nil && !canExecute(fmt.Sprintf("/proc/%d/root", state.InitProcessPid), &p, idMapsOf(state.InitProcessPid), nil) {
			return fmt.Errorf("%w: %w", errProgram, err)
		}
		return err
	}
	return c.leave(process)
}

// giveStreams makes this process's own streams the other's, or a terminal whose master goes to the console socket.
func (c *command) giveStreams(p *libcontainer.Process, terminal bool) (done func(), err error) {
	if !terminal {
		p.Stdin, p.Stdout, p.Stderr = os.Stdin, os.Stdout, os.Stderr
		return func() {}, nil
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: c.consoleSocket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("console socket: %w", err)
	}
	defer conn.Close()
	p.ConsoleSocket, err = conn.File()
	if err != nil {
		return nil, err
	}
	return func() { p.ConsoleSocket.Close() }, nil
}

// leave writes the pid of the process that is left behind.
func (c *command) leave(p *libcontainer.Process) error {
	pid, err := p.Pid()
	if err != nil {
		return err
	}
	return atomicfile.Write(c.pidFile, []byte(strconv.Itoa(pid)), 0o600)
}

func (c *command) delete() error {
	lc, err := libcontainer.Load(c.root, c.id)
	switch {
	case errors.Is(err, libcontainer.ErrNotExist):
		// A state that was not stored: the directory is all there is.
		return os.RemoveAll(filepath.Join(c.root, c.id))
	case err != nil:
		return err
	}
	return lc.Destroy()
}

func (c *command) executable() error {
	var p specs.Process
	root, ids, mounts := fmt.Sprintf("/proc/%d/root", c.pid), idMapsOf(c.pid), []specs.Mount(nil)
	if c.bundle != "" {
		spec, err := c.readSpec()
		if err != nil {
			return err
		}
		p, root, ids, mounts = *spec.Process, spec.Root.Path, idMaps{spec.Linux.UIDMappings, spec.Linux.GIDMappings}, spec.Mounts
	} else if err := readJSON(c.process, &p); err != nil {
		return err
	}
	if !canExecute(root, &p, ids, mounts) {
		return errProgram
	}
	return nil
}
