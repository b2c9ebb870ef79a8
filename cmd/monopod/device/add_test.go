package device

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/cdispec/lint"
	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/hostnode"
	"monopod.dev/monopod/test/clitest"
)

// hostRig is a host with a folder of device nodes, a sysfs, a configuration and a folder of specs, and a node that may run.
type hostRig struct {
	t    *testing.T
	dir  string
	host hostnode.Host
}

func newHostRig(t *testing.T, dir string) *hostRig {
	t.Helper()
	r := &hostRig{t: t, dir: dir, host: hostnode.Host{Dev: filepath.Join(dir, "dev"), Sys: filepath.Join(dir, "sys")}}
	r.must(os.MkdirAll(r.host.Dev, 0o755))
	return r
}

func tempHostRig(t *testing.T) *hostRig {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return newHostRig(t, dir)
}

func (r *hostRig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *hostRig) dev(name string) string { return filepath.Join(r.host.Dev, name) }

// adapter plugs a serial adapter in: a copy of /dev/zero, found in sysfs by its number, and with udev's name for it.
func (r *hostRig) adapter(links ...string) {
	r.t.Helper()
	usb := filepath.Join(r.host.Sys, "devices/usb1/1-1")
	tty := filepath.Join(usb, "1-1:1.0/ttyUSB0/tty/ttyUSB0")
	r.must(errors.Join(os.MkdirAll(tty, 0o755), os.MkdirAll(filepath.Join(r.host.Sys, "bus/usb/devices"), 0o755), os.MkdirAll(filepath.Join(r.host.Sys, "dev/char"), 0o755)))
	for path, text := range map[string]string{usb + "/idVendor": "0403", usb + "/idProduct": "6001", usb + "/serial": "A50285BI", usb + "/product": "FT232R USB UART", tty + "/uevent": "DEVNAME=ttyUSB0"} {
		r.must(os.WriteFile(path, []byte(text+"\n"), 0o600))
	}
	r.must(errors.Join(os.Symlink("/sys/class/tty", tty+"/subsystem"), os.Symlink(usb, r.host.Sys+"/bus/usb/devices/1-1"), os.Symlink(tty, r.host.Sys+"/dev/char/1:5")))
	r.must(unix.Mknod(r.dev("ttyUSB0"), unix.S_IFCHR|0o660, int(unix.Mkdev(1, 5))))
	for _, link := range links {
		r.must(errors.Join(os.MkdirAll(filepath.Dir(r.dev(link)), 0o755), os.Symlink(r.dev("ttyUSB0"), r.dev(link))))
	}
}

// specDir is the folder to which --spec-dir leads, unless a test gives another.
func (r *hostRig) specDir() string { return filepath.Join(r.dir, "cdi") }

func (r *hostRig) config() string {
	r.t.Helper()
	path := filepath.Join(r.dir, "node.yaml")
	r.must(os.WriteFile(path, []byte(fmt.Sprintf("apiVersion: config.monopod.dev/v1alpha1\nkind: NodeConfiguration\ndevices:\n  cdiSpecDirs: [%q]\n", r.specDir())), 0o600))
	return path
}

// run runs `monopod device add` or rm on that host.
func (r *hostRig) run(command string, args ...string) (out, errs string, err error) {
	r.t.Helper()
	socket := filepath.Join(r.dir, protocol.SocketName)
	cmd := newAddCommand(r.host)
	if command == "rm" {
		cmd = newRemoveCommand(&socket)
	}
	o, e := clitest.NewLines(), clitest.NewLines()
	cmd.SetOut(o)
	cmd.SetErr(e)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{"--config", r.config(), "--spec-dir", r.specDir()}, args...))
	err = cmd.ExecuteContext(r.t.Context())
	return r.neutral(o.String()), r.neutral(e.String()), err
}

func (r *hostRig) neutral(s string) string {
	return strings.NewReplacer(r.host.Dev, "/dev", r.dir, "DIR").Replace(s)
}

const adapterLink = "serial/by-id/usb-FTDI_FT232R_USB_UART_A50285BI-if00-port0"

var temporary = regexp.MustCompile(`(?m)^note .* does not survive a reboot\n`) // the folder of the test's files

func TestDeviceAdd(t *testing.T) {
	for name, tc := range map[string]struct {
		links []string
		args  []string
	}{
		"number":   {nil, []string{"DEV/ttyUSB0"}},
		"better":   {[]string{adapterLink}, []string{"DEV/ttyUSB0"}},
		"link":     {[]string{adapterLink}, []string{"DEV/" + adapterLink, "--name", "modem", "--class", "modem", "--container-path", "/dev/modem", "--permissions", "rwm"}},
		"share":    {nil, []string{"DEV/ttyUSB0", "--share", "4"}},
		"usb":      {[]string{adapterLink}, []string{"--usb", "0403:6001", "--name", "modem"}},
		"usb-bare": {nil, []string{"--usb", "0403:6001:A50285BI", "--name", "modem"}},
		"json":     {[]string{adapterLink}, []string{"-o", "json", "DEV/ttyUSB0", "--usb", "0403:6001", "--name", "modem"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := tempHostRig(t)
			r.adapter(tc.links...)
			for i := range tc.args {
				tc.args[i] = strings.ReplaceAll(tc.args[i], "DEV", r.host.Dev)
			}
			out, errs, err := r.run("add", tc.args...)
			if err != nil || errs != "" {
				t.Fatalf("%v, %s", err, errs)
			}
			if name == "json" {
				var d addedDevice
				if err := json.Unmarshal([]byte(out), &d); err != nil {
					t.Fatal(err)
				}
				d.Notes = []string{}
				raw, err := json.MarshalIndent(d, "", "  ")
				r.must(err)
				out = string(raw) + "\n"
			}
			clitest.Golden(t, "device-add-"+name, temporary.ReplaceAllString(out, ""))
			entries, err := os.ReadDir(r.specDir())
			if err != nil || len(entries) != 1 {
				t.Fatalf("%v, %v", entries, err)
			}
			file := filepath.Join(r.specDir(), entries[0].Name())
			spec, err := os.ReadFile(file)
			r.must(err)
			if v := lint.Check(file, spec, cdispec.ThisHost()); !v.OK() || len(v.Faults) > 0 {
				t.Errorf("%+v", v)
			}
		})
	}
}

func TestDeviceAddWhatIsThere(t *testing.T) {
	r := tempHostRig(t)
	r.adapter(adapterLink)
	if _, _, err := r.run("add", r.dev("ttyUSB0")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.run("add", r.dev("ttyUSB0")); err == nil || !strings.Contains(err.Error(), "replace it with --replace, take it away with 'monopod device rm ttyUSB0', or give another --name") {
		t.Error(err)
	}
	out, _, err := r.run("add", r.dev("ttyUSB0"), "--usb", "0403:6001", "--name", "ttyUSB0", "--replace")
	if err != nil || !strings.HasPrefix(out, "replaced  device.monopod.dev/serial=ttyUSB0\n") {
		t.Errorf("%v\n%s", err, out)
	}
	out, _, err = r.run("add", r.dev("ttyUSB0"), "--name", "second", "--spec-dir", filepath.Join(r.dir, "elsewhere"))
	if err != nil {
		t.Fatal(err)
	}
	for _, note := range []string{"device.monopod.dev/serial has 2 devices now (the others: ttyUSB0), and a pod that asks for it gets any one of them: give a device that is meant a --class of its own",
		"it is the same device as device.monopod.dev/serial=ttyUSB0: only one of them is granted at a time",
		"a node with this configuration does not read DIR/elsewhere: name the folder in devices.cdiSpecDirs (DIR/cdi)"} {
		if !strings.Contains(out, "note      "+note+"\n") {
			t.Errorf("lacks %q:\n%s", note, out)
		}
	}
}

func TestDeviceAddRefuses(t *testing.T) {
	r := tempHostRig(t)
	r.adapter()
	for _, tc := range []struct {
		usage bool
		want  string
		args  []string
	}{
		{true, "name a device, PATH or --usb", nil},
		{true, "name one device, not 2", []string{"a", "b"}},
		{true, "is a directory, no character or block device", []string{r.host.Dev}},
		{true, "is a regular file, no character or block device", []string{filepath.Join(r.dir, "node.yaml")}},
		{true, "--usb is \"x\"", []string{"--usb", "x"}},
		{true, "--permissions is \"x\"", []string{r.dev("ttyUSB0"), "--permissions", "x"}},
		{true, "--spec-dir is empty", []string{r.dev("ttyUSB0"), "--spec-dir", ""}},
		{true, "--output is \"yaml\"", []string{r.dev("ttyUSB0"), "-o", "yaml"}},
		{true, "--share is 0: give a number of containers, from 1", []string{r.dev("ttyUSB0"), "--share", "0"}},
		{true, "--share is 1025: give a number of containers from 1 to 1024", []string{r.dev("ttyUSB0"), "--share", "1025"}},
		{false, "does not exist: plug the device in", []string{r.dev("ttyUSB1")}},
		{false, "no USB device 1a86:7523 is plugged in: there are 0403:6001:A50285BI (FT232R USB UART, port 1-1)", []string{"--usb", "1a86:7523"}},
		{false, "belongs to the USB device 0403:6001:A50285BI, not to 1a86:7523", []string{r.dev("ttyUSB0"), "--usb", "1a86:7523"}},
	} {
		out, _, err := r.run("add", tc.args...)
		u := (*cli.UsageError)(nil)
		if err == nil || !strings.Contains(err.Error(), tc.want) || errors.As(err, &u) != tc.usage || out != "" {
			t.Errorf("%q: %v (usage: %v), %s", tc.args, err, errors.As(err, &u), out)
		}
	}
	if _, err := os.Stat(r.specDir()); err == nil {
		t.Error("a folder was made")
	}
}

// The command is a node's: it is found, its help has its flags and not the node's.
func TestDeviceAddHelp(t *testing.T) {
	for _, name := range []string{"add", "rm"} {
		out, _, err := clitest.Command(t.Context(), clitest.Root(Command()), "device", name, "--help")
		if err != nil || !strings.Contains(out.String(), "--spec-dir") || strings.Contains(out.String(), "--topology") {
			t.Errorf("%v, %s", err, out)
		}
	}
}

// A node that runs is asked before a device is taken away.
func TestDeviceRemove(t *testing.T) {
	node := clitest.NewAdminRig(t, protocol.Status{})
	r := newHostRig(t, node.Dir)
	r.adapter()
	listed := clitest.NewLines()
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	watched := make(chan error, 1)
	go func() {
		watched <- clitest.CommandInto(watching, clitest.Root(Command()), listed, clitest.NewLines(), "device", "--admin-socket", node.Socket, "ls", "-w", "-o", "json")
	}()
	for _, name := range []string{"modem", "spare"} {
		if _, _, err := r.run("add", r.dev("ttyUSB0"), "--name", name, "--class", name); err != nil {
			t.Fatal(err)
		}
		listed.Await(t, `"name":"`+name+`","health":"Healthy"`)
	}
	node.Admit("logger", clitest.Asks("main", alloc.Main, "device.monopod.dev/modem", 1))
	if out, _, err := r.run("rm", "modem"); err == nil || out != "" || cli.Plainly(err) != "device device.monopod.dev/modem=modem is in use by default/logger/main. Delete the pod, or use --force: the container keeps the device and will not be restarted" {
		t.Errorf("%v, %s", err, out)
	}
	if out, errs, err := r.run("rm", "spare"); err != nil || errs != "" || out != "removed   device.monopod.dev/spare=spare\nfile      DIR/cdi/monopod-device-spare.yaml\n" {
		t.Errorf("%v, %s, %s", err, out, errs)
	}
	listed.Await(t, `{"type":"removed","device":{"resource":"device.monopod.dev/spare"`)
	out, _, err := r.run("rm", "modem", "--force", "-o", "json")
	var gone removedDevice
	if err != nil || json.Unmarshal([]byte(out), &gone) != nil || strings.Join(gone.Holders, " ") != "default/logger/main" || len(gone.Notes) != 1 {
		t.Errorf("%v, %s", err, out)
	}
	listed.Await(t, `"name":"modem","health":"Missing"`)
	stop()
	if err := <-watched; err != nil {
		t.Error(err)
	}

	// Where no node runs nobody is asked; whom one cannot ask is no nobody.
	if _, _, err := r.run("add", r.dev("ttyUSB0")); err != nil {
		t.Fatal(err)
	}
	node.Stop()
	if out, errs, err := r.run("rm", "ttyUSB0"); err != nil || !strings.HasPrefix(out, "removed") || errs != "note: no node runs at DIR/admin.sock, so nobody was asked whether a container has the device\n" {
		t.Errorf("%v, %s, %s", err, out, errs)
	}
	for args, want := range map[string]string{"": "name one device, not 0", "a b": "name one device, not 2", "none": `there is no device "none"`, "w0": "is of the kind example.com/widget, which 'monopod device add' makes none of"} {
		if _, _, err := r.run("rm", strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
