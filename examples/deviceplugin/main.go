// Command deviceplugin is an emulated device plugin: see its README.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/examples/deviceplugin/emulator"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "deviceplugin:", err)
		os.Exit(1)
	}
}

// settings are the flags that are not the emulator's own.
type settings struct {
	emulator.Config
	devices, numa                                                  int
	control, failAllocate, failOptions, failPreStart               string
	hangAllocate, hangOptions, hangPreStart, noResponse, makeNodes bool
	bad                                                            string
	ignoreSigterm                                                  bool
	answers                                                        []func(ids []string, r *v1beta1.ContainerAllocateResponse)
}

func parse(args []string) (*settings, error) {
	var s settings
	f := flag.NewFlagSet("deviceplugin", flag.ContinueOnError)
	f.StringVar(&s.Resource, "resource", "example.com/emulated", "the extended resource to offer")
	f.IntVar(&s.devices, "devices", 2, "how many devices, dev-0 and so on")
	f.IntVar(&s.numa, "numa", 0, "on how many NUMA nodes the devices are, in turn; 0: no topology is told")
	f.StringVar(&s.Dir, "dir", "/var/lib/kubelet/device-plugins", "the folder of kubelet.sock and of the plugin's socket")
	f.StringVar(&s.RegistryDir, "registry", "", "serve in this folder and be found there by a plugin watcher (/var/lib/kubelet/plugins_registry), in place of registering at kubelet.sock")
	f.StringVar(&s.Endpoint, "endpoint", "emulator.sock", "the name of the plugin's socket")
	f.StringVar(&s.Version, "api-version", v1beta1.Version, "the version of the API that the plugin says it speaks")
	f.StringVar(&s.NodePath, "device-path", "/dev/null", "the host's device node; %s in it is the device's ID")
	f.BoolVar(&s.makeNodes, "make-nodes", false, "make the nodes of --device-path that are missing, as copies of /dev/null")
	f.StringVar(&s.CDIKind, "cdi-kind", "", "answer Allocate with CDI names of this kind, VENDOR/CLASS=ID, in place of device nodes")
	f.StringVar(&s.control, "control", "", "a folder whose files set the devices' health: echo Unhealthy > FOLDER/dev-0")
	f.BoolVar(&s.RegisterBeforeServing, "register-before-serving", false, "serve only after a registration that succeeded, as the API says; most plugins serve first")
	f.BoolVar(&s.IgnoreKubeletSocket, "ignore-kubelet-socket", false, "do not register again when kubelet.sock is new, only when the plugin's own socket is removed")
	f.BoolVar(&s.IgnoreOwnSocket, "ignore-own-socket", false, "do not register again when the plugin's own socket is removed, only when kubelet.sock is new")
	f.BoolVar(&s.NoOptions, "no-options", false, "do not know GetDevicePluginOptions, as old plugins")
	f.BoolVar(&s.Preferred, "preferred", false, "offer GetPreferredAllocation: the last devices first")
	f.BoolVar(&s.PreStart, "pre-start", false, "ask for PreStartContainer")
	f.StringVar(&s.failAllocate, "fail-allocate", "", "fail each Allocate with these words")
	f.StringVar(&s.failOptions, "fail-options", "", "fail each GetDevicePluginOptions with these words")
	f.StringVar(&s.failPreStart, "fail-pre-start", "", "fail each PreStartContainer with these words")
	f.BoolVar(&s.hangAllocate, "hang-allocate", false, "never answer an Allocate")
	f.BoolVar(&s.hangOptions, "hang-options", false, "never answer a GetDevicePluginOptions")
	f.BoolVar(&s.hangPreStart, "hang-pre-start", false, "never answer a PreStartContainer")
	f.BoolVar(&s.noResponse, "no-response", false, "answer each Allocate without a container_response")
	f.StringVar(&s.bad, "bad", "", "break the contract of the API, in ways with commas between them: "+faultNames())
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	s.Devices = emulator.Devices(s.devices, s.numa)
	s.hook()
	return &s, s.breakIt()
}

// hook sets the failures.
func (s *settings) hook() {
	h := &s.Hooks
	switch {
	case s.hangAllocate:
		h.Allocate = func(ctx context.Context, _ []string) (*v1beta1.AllocateResponse, error) { return nil, hang(ctx) }
	case s.failAllocate != "":
		h.Allocate = func(context.Context, []string) (*v1beta1.AllocateResponse, error) {
			return nil, errors.New(s.failAllocate)
		}
	case s.noResponse:
		h.Allocate = func(context.Context, []string) (*v1beta1.AllocateResponse, error) {
			return &v1beta1.AllocateResponse{}, nil
		}
	}
	switch {
	case s.hangOptions:
		h.Options = func(ctx context.Context) (*v1beta1.DevicePluginOptions, error) { return nil, hang(ctx) }
	case s.failOptions != "":
		h.Options = func(context.Context) (*v1beta1.DevicePluginOptions, error) { return nil, errors.New(s.failOptions) }
	}
	switch {
	case s.hangPreStart:
		h.PreStart = func(ctx context.Context, _ []string) error { return hang(ctx) }
	case s.failPreStart != "":
		h.PreStart = func(context.Context, []string) error { return errors.New(s.failPreStart) }
	}
}

func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func run(ctx context.Context, args []string) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	s.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	if s.makeNodes {
		if err := makeNodes(s); err != nil {
			return err
		}
	}
	if s.ignoreSigterm {
		ctx = context.WithoutCancel(ctx)
	}
	p := emulator.New(s.Config)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	followed := make(chan error, 1)
	go func() {
		defer cancel()
		if s.control == "" {
			<-ctx.Done()
			followed <- nil
			return
		}
		followed <- follow(ctx, p, s.control)
	}()
	err = p.Run(ctx)
	cancel()
	return errors.Join(err, <-followed)
}

func follow(ctx context.Context, p *emulator.Plugin, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := p.FollowFolder(ctx, folder); err != nil {
		return fmt.Errorf("--control %s: %w", folder, err)
	}
	return nil
}

// makeNodes makes what --device-path leads to.
func makeNodes(s *settings) error {
	for _, d := range s.Devices {
		path := strings.ReplaceAll(s.NodePath, "%s", d.ID)
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make %s: %w", path, err)
		}
	}
	return nil
}
