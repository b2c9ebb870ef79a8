package ocispec

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// defaultPath is $PATH where neither the image nor CRI sets one.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func process(in Input) (*specs.Process, error) {
	c, sc := in.Container, in.Container.GetLinux().GetSecurityContext()
	args, err := arguments(in)
	if err != nil {
		return nil, err
	}
	caps, _, err := Capabilities(sc, in.Host.Capabilities)
	if err != nil {
		return nil, err
	}
	if in.User.UID != 0 {
		// Who is not root has these alone after execve. A search of $PATH that had the others would find programs that this user cannot read.
		caps.Effective = slices.Clone(caps.Ambient)
	}
	p := &specs.Process{
		Terminal: c.GetTty(),
		User: specs.User{
			UID:            in.User.UID,
			GID:            in.User.GID,
			AdditionalGids: slices.Clone(in.User.AdditionalGids),
		},
		Args:            args,
		Env:             environment(in),
		Cwd:             workingDir(in),
		Capabilities:    caps,
		NoNewPrivileges: sc.GetNoNewPrivs(),
		OOMScoreAdj:     oomScoreAdj(c.GetLinux().GetResources(), in.Host),
		SelinuxLabel:    in.SELinux.Process,
	}
	if err := checkImage(p, in); err != nil {
		return nil, err
	}
	p.ApparmorProfile, err = AppArmorFor(sc, in.Host)
	return p, err
}

// checkImage refuses what the image says and no process can have. The container's own configuration has been validated, so a NUL is the
// image's.
func checkImage(p *specs.Process, in Input) error {
	for what, list := range map[string][]string{"Entrypoint or Cmd": p.Args, "Env": p.Env, "WorkingDir": {p.Cwd}} {
		if i := slices.IndexFunc(list, hasNUL); i >= 0 {
			return invalid("image", "%q: %q of its %s holds a NUL: mend the image, or replace it by the container's own", in.Container.GetImage().GetImage(), list[i], what)
		}
	}
	return nil
}

// arguments puts the command line together as Kubernetes documents it: a command replaces the image's entrypoint and its
// arguments, args replace the image's arguments only.
func arguments(in Input) ([]string, error) {
	command, args := in.Container.GetCommand(), in.Container.GetArgs()
	if len(command) == 0 {
		// ENTRYPOINT [""] is how a Dockerfile takes back the entrypoint of the image it builds on.
		if command = in.Image.Entrypoint; len(command) == 1 && command[0] == "" {
			command = nil
		}
		if len(args) == 0 {
			args = in.Image.Cmd
		}
	}
	line := slices.Concat(command, args)
	if len(line) == 0 || line[0] == "" {
		return nil, invalid("command", "neither the container nor its image %q says what to run: set command", in.Container.GetImage().GetImage())
	}
	return line, nil
}

// environment is the image's, overlaid with CRI's, with defaults where neither sets a variable. A variable that is set twice
// has one entry, at its first place and with its last value: getenv(3) takes the first, shells take the last.
func environment(in Input) []string {
	var env []string
	set := func(entry string) {
		name, _, _ := strings.Cut(entry, "=")
		if i := indexOf(env, name); i >= 0 {
			env[i] = entry
		} else {
			env = append(env, entry)
		}
	}
	byDefault := func(name, value string) {
		if value != "" && indexOf(env, name) < 0 {
			env = append(env, name+"="+value)
		}
	}
	for _, entry := range in.Image.Env {
		if strings.Contains(entry, "=") { // others are no environment: execve(2) would pass them on as rubbish
			set(entry)
		}
	}
	for _, kv := range in.Container.GetEnvs() {
		set(kv.GetKey() + "=" + string(kv.GetValue()))
	}
	byDefault("PATH", defaultPath)
	byDefault("HOSTNAME", in.Hostname)
	byDefault("HOME", in.User.Home)
	if in.Container.GetTty() {
		byDefault("TERM", "xterm")
	}
	return env
}

func indexOf(env []string, name string) int {
	return slices.IndexFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
}

func workingDir(in Input) string {
	if dir := in.Container.GetWorkingDir(); dir != "" {
		return dir
	}
	return path.Join("/", in.Image.WorkingDir)
}

// ExecProcess makes the process of an exec in the container whose process is given: the same user, environment,
// capabilities and limits.
func ExecProcess(container *specs.Process, args []string, tty bool) (*specs.Process, error) {
	if len(args) == 0 || args[0] == "" {
		return nil, fmt.Errorf("cmd: empty, it must name a program: %w", errdefs.ErrInvalidArgument)
	}
	if i := slices.IndexFunc(args, hasNUL); i >= 0 {
		return nil, fmt.Errorf("cmd[%d] holds a NUL, at which an argument ends: leave it out: %w", i, errdefs.ErrInvalidArgument)
	}
	p := *container
	if p.Capabilities == nil {
		p.Capabilities = &specs.LinuxCapabilities{} // none, and not those of whoever starts it
	}
	p.Args, p.Terminal, p.ConsoleSize, p.CommandLine = slices.Clone(args), tty, nil, ""
	p.Env = slices.Clone(container.Env)
	if tty && indexOf(p.Env, "TERM") < 0 {
		p.Env = append(p.Env, "TERM=xterm")
	}
	return &p, nil
}
