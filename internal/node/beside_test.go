package node

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/admin/client"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/config"
)

// TestRolesBesideEachOther: an API server and an agent that were started apart with the same directories work as one node, each with an administration
// socket of its own; a second one of a role is refused, by name.
func TestRolesBesideEachOther(t *testing.T) {
	dir, err := os.MkdirTemp("", "n") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	in := func(name string) string { return filepath.Join(dir, name) }
	none := int32(0)
	c := &v1alpha1.NodeConfiguration{NodeName: "edge-1", DataDir: in("data"), RunDir: in("run")}
	c.APIServer.Port, c.APIServer.Kubeconfig, c.APIServer.EtcdTick.Duration = &none, in("kubeconfig"), 10*time.Millisecond
	c.Agent.Address, c.Agent.Port, c.Agent.PodLogsDir = "127.0.0.1", &none, in("logs")
	c.Agent.ContainerLogsDir = in("containers")
	c.Devices.PluginDir, c.Devices.PluginRegistryDir, c.Devices.PodResourcesSocket, c.Devices.CDISpecDirs = in("plugins"), in("registry"), in("pr.sock"), []string{in("cdi")}
	config.Default(c, "edge-1")
	// begin runs a role until the test ends, and returns when it is under way.
	begin := func(role func(context.Context, Options) error, underWay func(ready <-chan struct{}) <-chan struct{}) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		ready, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- role(ctx, Options{Config: c, Log: slog.New(slog.DiscardHandler), OnReady: func() { close(ready) }})
		}()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		select {
		case <-underWay(ready):
		case err := <-done:
			done <- nil
			t.Fatal(err)
		case <-time.After(5 * time.Minute):
			t.Fatal("it is not under way")
		}
	}
	begin(APIServer, func(ready <-chan struct{}) <-chan struct{} { return ready })
	kube, err := clientcmd.BuildConfigFromFlags("", c.APIServer.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	agent := func(ctx context.Context, o Options) error {
		return Agent(ctx, o, kube, Credentials{ServingCert: in("data/pki/agent.crt"), ServingKey: in("data/pki/agent.key"), ClientCA: in("data/pki/ca.crt")})
	}
	// It waits for a runtime, so it does not get ready; its socket says that it is there.
	begin(agent, func(<-chan struct{}) <-chan struct{} { return served(t, in("run/"+protocol.SocketName)) })

	var roles []string
	for _, name := range []string{protocol.SocketName, protocol.APIServerSocketName} {
		asked := client.New(filepath.Join(c.RunDir, name))
		s, err := asked.Status(t.Context())
		asked.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range s.Roles {
			roles = append(roles, r.Name)
		}
	}
	if !slices.Equal(roles, []string{"devices", "agent", "apiserver"}) {
		t.Errorf("roles %q", roles)
	}
	for name, again := range map[string]func(context.Context, Options) error{"apiserver": APIServer, "agent": agent, "the whole": Up} {
		err := again(t.Context(), Options{Config: c, Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			t.Errorf("%s runs twice", name)
			continue
		}
		for _, say := range []string{"process " + strconv.Itoa(os.Getpid()), c.RunDir + ": stop it", "--run-dir"} {
			if !strings.Contains(err.Error(), say) {
				t.Errorf("%s again: %q does not say %q", name, err, say)
			}
		}
	}
}

// served is closed when a socket is there.
func served(t *testing.T, socket string) <-chan struct{} {
	there := make(chan struct{})
	go func() {
		for ; t.Context().Err() == nil; time.Sleep(time.Millisecond) {
			if _, err := os.Lstat(socket); err == nil {
				close(there)
				return
			}
		}
	}()
	return there
}
