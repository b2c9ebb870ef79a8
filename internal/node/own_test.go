package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// place is a node with directories of its own, whose other settings are those of all nodes of the machine.
func place(t *testing.T, shared string) *home {
	t.Helper()
	c := &v1alpha1.NodeConfiguration{DataDir: filepath.Join(t.TempDir(), "data"), RunDir: filepath.Join(t.TempDir(), "run")}
	c.APIServer.Kubeconfig = filepath.Join(shared, "etc", "kubeconfig")
	c.Agent.PodLogsDir, c.Agent.ContainerLogsDir = filepath.Join(shared, "pods"), filepath.Join(shared, "containers")
	return &home{config: c, ephemeral: true}
}

// writes has the API server of a node write its kubeconfig.
func writes(t *testing.T, h *home, users ...string) {
	t.Helper()
	put := func(path string, data []byte) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert := []byte("the administrator of " + h.config.DataDir + "\n")
	put(filepath.Join(h.config.DataDir, "pki", "admin.crt"), cert)
	config := clientcmdapi.NewConfig()
	config.Clusters["monopod"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:6443"}
	for _, name := range append(users, "monopod") {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cert}
	}
	raw, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	put(h.config.APIServer.Kubeconfig, raw)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestWhatEndsRemovesItsOwn: a role that leaves nothing behind, or a reset, beside another node of the machine.
func TestWhatEndsRemovesItsOwn(t *testing.T) {
	ends := func(t *testing.T, h *home, parts ...part) {
		t.Helper()
		unlock, err := h.enter(parts...)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.leave(unlock); err != nil {
			t.Fatal(err)
		}
		if exists(h.config.DataDir) || exists(h.config.RunDir) {
			t.Error("its directories are there still")
		}
	}
	t.Run("a role that writes no kubeconfig", func(t *testing.T) {
		shared := t.TempDir()
		lives := place(t, shared)
		writes(t, lives)
		ends(t, place(t, shared), partRuntime)
		if !exists(lives.config.APIServer.Kubeconfig) {
			t.Error("the kubeconfig of the other node is gone")
		}
	})
	t.Run("a node that others know as well", func(t *testing.T) {
		h := place(t, t.TempDir())
		unlock, err := h.enter(allParts...)
		if err != nil {
			t.Fatal(err)
		}
		writes(t, h, "somebody")
		if err := h.leave(unlock); err != nil || !exists(h.config.APIServer.Kubeconfig) {
			t.Errorf("a kubeconfig with users of others is gone, or: %v", err)
		}
	})
	t.Run("its own", func(t *testing.T) {
		shared := t.TempDir()
		h := place(t, shared)
		unlock, err := h.enter(allParts...)
		if err != nil {
			t.Fatal(err)
		}
		writes(t, h)
		for _, dir := range []string{h.config.Agent.PodLogsDir, h.config.Agent.ContainerLogsDir} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.leave(unlock); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(shared); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
	t.Run("folders of others that are empty just now", func(t *testing.T) {
		h := place(t, t.TempDir())
		for _, dir := range []string{h.config.Agent.PodLogsDir, h.config.Agent.ContainerLogsDir} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		ends(t, h, allParts...)
		if !exists(h.config.Agent.PodLogsDir) || !exists(h.config.Agent.ContainerLogsDir) {
			t.Error("folders are gone that were there before")
		}
	})
	t.Run("an ephemeral node does not take another's kubeconfig", func(t *testing.T) {
		shared := t.TempDir()
		writes(t, place(t, shared))
		_, err := place(t, shared).enter(partAPIServer)
		if err == nil || !strings.Contains(err.Error(), "--write-kubeconfig") {
			t.Errorf("%v", err)
		}
	})
}

func TestTheDirectoryOfAKeeper(t *testing.T) {
	for cmdline, want := range map[string]string{
		"/usr/bin/monopod-executor\x00keeper\x00--socket\x00/run/m/executor.sock\x00--dir\x00/run/m/executor\x00--cgroup\x00/monopod/executor\x00": "/run/m/executor",
		"sleep\x001000\x00": "", "x\x00--dir": "", "": "",
	} {
		if got := dirArgument([]byte(cmdline)); got != want {
			t.Errorf("%q: %q, want %q", cmdline, got, want)
		}
	}
}
