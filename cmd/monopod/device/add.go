package device

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/devices/hostdevice"
	"monopod.dev/monopod/internal/devices/hostnode"
	"monopod.dev/monopod/internal/devices/hostspecs"
	"monopod.dev/monopod/internal/kit/oneline"
)

// deviceAdd is a call of `monopod device add`.
type deviceAdd struct {
	host    hostnode.Host
	request hostdevice.Request
	usb     string
	replace bool
	format  string
	folders func() (dir string, all []string, err error)
}

// addedDevice is what `monopod device add` has made.
type addedDevice struct {
	// Device is the CDI name, Resource what pods ask for.
	Device   string `json:"device"`
	Resource string `json:"resource"`
	Name     string `json:"name"`
	File     string `json:"file"`
	// HostPath is in the spec, and leads to Node now.
	HostPath      string             `json:"hostPath"`
	Node          string             `json:"node"`
	ContainerPath string             `json:"containerPath"`
	Permissions   string             `json:"permissions"`
	Follows       hostdevice.Follows `json:"follows"`
	USB           *hostdevice.USB    `json:"usb,omitempty"`
	// Shares is how many containers may have it at a time.
	Shares   int      `json:"shares"`
	Replaced bool     `json:"replaced"`
	Notes    []string `json:"notes"`
	// Resources are what goes into a pod's container.
	Resources containerResources `json:"resources"`
}

type containerResources struct {
	Limits map[string]string `json:"limits"`
}

func newAddCommand(host hostnode.Host) *cobra.Command {
	add := &deviceAdd{host: host, request: hostdevice.Request{Dev: host.Dev}}
	cmd := &cobra.Command{
		Use:   "add [PATH]",
		Short: "Give a device of the host to pods",
		Long: `Lets pods have a device of the host, a character or block device, without being privileged. The device becomes
one of the resource device.monopod.dev/CLASS, which pods request in their limits: the last lines of the output
are the lines for the pod. A running node sees the device at once. It stays over reboots, until
'monopod device rm NAME'.

PATH is the device's node, such as /dev/ttyUSB0, or a link that udev makes for it (/dev/serial/by-id/...). A
link below /dev is kept as it is, so that the device is found again when it is unplugged, plugged in again and
gets another number. --usb finds the device by its ids, and uses such a link if there is one. If there is none,
the device must keep its number, and the output says so.

A pod that requests a resource gets any one of its devices. If a pod needs a certain device, give that device a
--class of its own.

The default of --class is the kind of the device: serial, video, hid, input, block, usb and so on, or host. The
default of --name is the last part of the device's path. In a pod, the device has the path that you gave, or that
of --container-path, which can be the same for all devices of a class. There it belongs to the container's user.

With --share N, up to N containers have the device at a time, and the node counts N devices. Nothing is divided:
each container has the device as if it were alone, and must get along with the others. Use it for devices that
can be opened more than once, such as /dev/kvm, not for a serial line.

The command writes a CDI spec, monopod-device-NAME.yaml, into the first directory of devices.cdiSpecDirs that
survives a reboot; without a configuration that is /etc/cdi. No node needs to run.

Exit codes: 0 if the device was added; 1 if there is no such device, the name is taken, or something failed; 2 for
an invalid command line or configuration.`,
		Example: `  monopod device add /dev/ttyUSB0
  monopod device add /dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A50285BI-if00-port0 --name modem --class modem
  monopod device add --usb 0403:6001:A50285BI --name modem --container-path /dev/modem
  monopod device add /dev/kvm --share 100
  monopod device add /dev/watchdog1 --permissions w --class watchdog`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return &cli.UsageError{Err: fmt.Errorf("name one device, not %d; see '%s --help'", len(args), cmd.CommandPath())}
			}
			if len(args) == 0 && add.usb == "" {
				return &cli.UsageError{Err: fmt.Errorf("name a device, PATH or --usb VENDOR:PRODUCT; see '%s --help'", cmd.CommandPath())}
			}
			return nil
		},
	}
	add.folders = specFolder(cmd) // first: it hides the flags that there are
	cmd.Flags().StringVar(&add.request.Name, "name", "", "`NAME` of the device (default: the last part of its path)")
	cmd.Flags().StringVar(&add.request.Class, "class", "", "`CLASS` of devices, for the resource device.monopod.dev/CLASS (default: the kind of the device, such as serial)")
	cmd.Flags().StringVar(&add.usb, "usb", "", "find the device by its USB ids, `VENDOR:PRODUCT[:SERIAL]`")
	cmd.Flags().StringVar(&add.request.Permissions, "permissions", "rw", "what containers may do with the device: `LETTERS` of r (read), w (write), m (mknod)")
	cmd.Flags().StringVar(&add.request.ContainerPath, "container-path", "", "`PATH` of the device in containers (default: PATH, or the link that --usb found)")
	cmd.Flags().IntVar(&add.request.Shares, "share", 1, "let `N` containers have the device at a time; they are not isolated from each other")
	cmd.Flags().BoolVar(&add.replace, "replace", false, "replace a device of this name")
	cli.FormatFlag(cmd, &add.format, cli.AsText, cli.AsJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		made, err := add.run(strings.Join(args, ""))
		if err != nil {
			return asUsage(err)
		}
		if add.format == cli.AsJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), made)
		}
		return made.print(cmd.OutOrStdout())
	}
	return cmd
}

// asUsage is an error about a value that was given, told as that.
func asUsage(err error) error {
	if errdefs.IsInvalidArgument(err) {
		return &cli.UsageError{Err: err}
	}
	return err
}

func (a *deviceAdd) run(path string) (*addedDevice, error) {
	req := a.request
	if req.Shares < 1 {
		return nil, fmt.Errorf("--share is %d: give a number of containers, from 1: %w", req.Shares, errdefs.ErrInvalidArgument)
	}
	req.ByPath = path != ""
	if a.usb != "" {
		usb, err := hostdevice.ParseUSB(a.usb)
		if err != nil {
			return nil, err
		}
		req.USB = &usb
		if path == "" {
			if path, err = a.host.Find(usb); err != nil {
				return nil, err
			}
		}
	}
	node, err := a.host.Look(path)
	if err != nil {
		return nil, err
	}
	plan, err := hostdevice.Decide(req, node)
	if err != nil {
		return nil, err
	}
	dir, dirs, err := a.folders()
	if err != nil {
		return nil, err
	}
	added, err := hostspecs.Specs{Dirs: dirs, Host: cdispec.ThisHost()}.Add(dir, plan, node.Real, a.replace)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("the spec of the device cannot be written to %s: %w; run this as root", dir, err)
	}
	if err != nil {
		return nil, err
	}
	return &addedDevice{Device: plan.Qualified(), Resource: plan.Kind, Name: plan.Name, File: added.File, HostPath: plan.HostPath, Node: node.Real,
		ContainerPath: plan.ContainerPath, Permissions: plan.Permissions, Follows: plan.Follows, USB: node.USB, Shares: req.Shares, Replaced: added.Replaced,
		Notes:     append(slices.Concat([]string{}, plan.Notes), addNotes(plan, added, dir, dirs)...),
		Resources: containerResources{Limits: map[string]string{plan.Kind: "1"}}}, nil
}

// addNotes are what the other specs of the host make worth saying.
func addNotes(p hostdevice.Plan, a hostspecs.Added, dir string, dirs []string) (notes []string) {
	if len(a.Mates) > 0 {
		notes = append(notes, fmt.Sprintf("%s has %d devices now (the others: %s), and a pod that asks for it gets any one of them: give a device that is meant a --class of its own",
			p.Kind, len(a.Mates)+1, strings.Join(a.Mates, ", ")))
	}
	if len(a.Same) > 0 {
		notes = append(notes, fmt.Sprintf("it is the same device as %s: only one of them is granted at a time", strings.Join(a.Same, ", ")))
	}
	if !slices.Contains(dirs, dir) {
		notes = append(notes, fmt.Sprintf("a node with this configuration does not read %s: name the folder in devices.cdiSpecDirs (%s)", dir, strings.Join(dirs, ", ")))
	}
	if !hostdevice.Survives(dir) {
		notes = append(notes, fmt.Sprintf("%s does not survive a reboot", dir))
	}
	return notes
}

// followed tells people by what a device is known.
var followed = map[hostdevice.Follows]string{
	hostdevice.ByLink:   "by its own name: when it is plugged in again it may have another number",
	hostdevice.ByPort:   "by the port where it is plugged in",
	hostdevice.ByNumber: "by its path: it is not found if the kernel gives it another number",
}

func (d *addedDevice) print(w io.Writer) error {
	var b strings.Builder
	word, host := "added", d.HostPath
	if d.Replaced {
		word = "replaced"
	}
	if d.Node != d.HostPath {
		host += ", now " + d.Node
	}
	if d.USB != nil {
		host += ", USB " + d.USB.String()
	}
	fmt.Fprintf(&b, "%-9s %s\n", word, d.Device)
	for _, line := range [][2]string{{"file", d.File}, {"host", host}, {"in pods", d.ContainerPath + ", " + d.Permissions}, {"followed", followed[d.Follows]}} {
		fmt.Fprintf(&b, "%-9s %s\n", line[0], oneline.Of(line[1]))
	}
	for _, n := range d.Notes {
		fmt.Fprintf(&b, "note      %s\n", oneline.Of(n))
	}
	fmt.Fprintf(&b, "\nA container gets it with:\n\n    resources:\n      limits:\n        %s: 1\n", d.Resource)
	_, err := io.WriteString(w, b.String())
	return err
}

// specFolder gives a command --spec-dir, for one folder, and --config. What it returns tells the folder to write to, and those that a node reads.
func specFolder(cmd *cobra.Command) func() (dir string, all []string, err error) {
	cfg := cli.AddConfiguration(cmd, config.Devices)
	cli.ShowOnly(cmd, "config")
	given := cmd.Flags().String("spec-dir", "", "`DIR` of the spec (default: the first of devices.cdiSpecDirs that survives a reboot, /etc/cdi)")
	return func() (string, []string, error) {
		c, err := cfg.Load()
		if err != nil {
			return "", nil, err
		}
		all := c.Devices.CDISpecDirs
		if cmd.Flags().Changed("spec-dir") {
			dir, err := filepath.Abs(*given)
			if *given == "" || err != nil {
				return "", nil, &cli.UsageError{Err: errors.New("--spec-dir is empty: name a folder")}
			}
			return dir, all, nil
		}
		if dir := hostdevice.Folder(all); dir != "" {
			return dir, all, nil
		}
		return "", nil, &cli.UsageError{Err: fmt.Errorf("none of the configuration's folders of specs (%s) survives a reboot: name one with --spec-dir", strings.Join(all, ", "))}
	}
}
