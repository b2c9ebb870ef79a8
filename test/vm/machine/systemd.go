package machine

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"monopod.dev/monopod/test/vm/guest"
)

// systemdPrograms are what is taken of systemd and D-Bus, as paths below /usr; what is not in the packages of this version is left out. Little is
// run in the machine, because each program that starts in it costs emulated time.
var systemdPrograms = []string{"lib/systemd/systemd", "lib/systemd/systemd-executor", "lib/systemd/systemd-shutdown", "bin/systemctl", "bin/busctl", "bin/dbus-daemon"}

// systemdData is what they read.
var systemdData = []string{"share/dbus-1/system.conf", "share/dbus-1/system.d/org.freedesktop.systemd1.conf", "share/dbus-1/system-services/org.freedesktop.systemd1.service"}

// libraryDir is where libraries are, in the packages (below /usr or not) and in the machine.
const libraryDir = "lib/x86_64-linux-gnu"

// systemdFiles are the units, all there are: systemd's own would start what takes minutes here, and nobody needs. With no default
// dependencies nothing of what they would name is looked for.
var systemdFiles = map[string]string{
	"etc/systemd/system/default.target": `[Unit]
DefaultDependencies=no
Requires=job.service
`,
	"etc/systemd/system/job.service": `[Unit]
DefaultDependencies=no
Wants=dbus.socket
After=dbus.socket
[Service]
ExecStart=` + guest.InitFile + `
StandardInput=null
StandardOutput=kmsg
TasksMax=infinity
OOMPolicy=continue
Delegate=yes
`,
	"etc/systemd/system/dbus.socket": `[Unit]
DefaultDependencies=no
[Socket]
ListenStream=/run/dbus/system_bus_socket
`,
	"etc/systemd/system/dbus.service": `[Unit]
DefaultDependencies=no
Requires=dbus.socket
[Service]
Type=notify
ExecStart=/usr/bin/dbus-daemon --system --address=systemd: --nofork --nopidfile --systemd-activation
`,
	"etc/machine-id": "6d6f6e6f706f642d766d2d7465737421\n",
}

// stageSystemd puts systemd into a staged root, with init as the program of its job.
func stageSystemd(root, packages, init string) error {
	if err := mergeLibraries(root); err != nil {
		return err
	}
	s := stage{root: root, packages: packages, done: map[string]bool{}}
	for _, name := range systemdPrograms {
		switch from, err := s.find(name); {
		case errors.Is(err, fs.ErrNotExist) && name == "lib/systemd/systemd-executor": // newer versions have it
		case err != nil:
			return err
		default:
			if err := s.program(from, name); err != nil {
				return err
			}
		}
	}
	for _, name := range systemdData {
		from, err := s.find(name)
		if err != nil {
			return err
		}
		if err := copyTree(from, filepath.Join(root, "usr", name)); err != nil {
			return err
		}
	}
	for name, content := range systemdFiles {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	for name, line := range map[string]string{"passwd": "messagebus:x:100:100::/nonexistent:/bin/false\n", "group": "messagebus:x:100:\n"} {
		if err := appendTo(filepath.Join(root, "etc", name), line); err != nil {
			return err
		}
	}
	return copyTree(init, filepath.Join(root, guest.InitFile))
}

// mergeLibraries makes /lib and /lib64 links into /usr, as every Debian has them by now.
func mergeLibraries(root string) error {
	for _, name := range []string{"lib", "lib64"} {
		if err := os.MkdirAll(filepath.Join(root, "usr", name), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("usr/"+name, filepath.Join(root, name)); err != nil {
			return err
		}
	}
	return nil
}

func appendTo(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}

// stage copies programs with the libraries that they are linked to.
type stage struct {
	root, packages string
	done           map[string]bool // libraries, by name
}

// find looks for a file of the packages by its path below /usr: older ones have some of them below the root.
func (s *stage) find(name string) (string, error) {
	var err error
	for _, dir := range []string{"usr", ""} {
		path := filepath.Join(s.packages, dir, name)
		if _, err = os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("the packages have no /usr/%s: %w", name, err)
}

func (s *stage) program(from, name string) error {
	if err := copyTree(from, filepath.Join(s.root, "usr", name)); err != nil {
		return err
	}
	f, err := elf.Open(from)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		raw := make([]byte, p.Filesz)
		if _, err := p.ReadAt(raw, 0); err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
		loader := strings.TrimRight(string(raw), "\x00")
		source, err := s.find(filepath.Join(libraryDir, filepath.Base(loader)))
		if err != nil {
			return err
		}
		if err := copyTree(source, filepath.Join(s.root, loader)); err != nil {
			return err
		}
	}
	return s.libraries(f)
}

// libraries copies what a program or a library is linked to, with what that is linked to.
func (s *stage) libraries(f *elf.File) error {
	needed, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, name := range needed {
		if s.done[name] {
			continue
		}
		s.done[name] = true
		at := filepath.Join(libraryDir, "systemd", name) // systemd's own
		from, err := s.find(at)
		if err != nil {
			at = filepath.Join(libraryDir, name)
			if from, err = s.find(at); err != nil {
				return err
			}
		}
		if err := s.program(from, at); err != nil {
			return err
		}
	}
	return nil
}
