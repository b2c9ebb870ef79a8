package apiserver_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// builtKubectl is where kubectlPath has put what it built.
var builtKubectl string

// kubectlPath returns $MONOPOD_KUBECTL, or builds cmd/kubectl, once for all tests.
var kubectlPath = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("MONOPOD_KUBECTL"); path != "" {
		return path, nil
	}
	var err error
	if builtKubectl, err = os.MkdirTemp("", "mp-kubectl-"); err != nil {
		return "", err
	}
	path := filepath.Join(builtKubectl, "kubectl")
	// As the Makefile does: the library's module v0.X.Y is kubectl 1.X.Y, and a kubectl without version cannot tell it.
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubectl").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	version := "v1" + strings.TrimPrefix(strings.TrimSpace(string(module)), "v0")
	cmd := exec.Command("go", "build", "-o", path, "-ldflags", "-X k8s.io/component-base/version.gitVersion="+version, "monopod.dev/monopod/cmd/kubectl")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return path, nil
})

// kubectl runs the real kubectl against a server. Its home is the test's own, so that it reads no other configuration.
type kubectl struct {
	t          testing.TB
	kubeconfig string
	home       string
}

func (i *instance) kubectl(t testing.TB) kubectl {
	return kubectl{t: t, kubeconfig: i.cfg.Kubeconfig, home: t.TempDir()}
}

// try runs kubectl with stdin and returns what it printed and whether it succeeded.
func (k kubectl) try(stdin string, args ...string) (stdout, stderr string, ok bool) {
	k.t.Helper()
	path, err := kubectlPath()
	if err != nil {
		k.t.Fatal(err)
	}
	cmd := exec.CommandContext(k.t.Context(), path, args...)
	cmd.Env = []string{"KUBECONFIG=" + k.kubeconfig, "HOME=" + k.home, "PATH=" + os.Getenv("PATH")}
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err == nil
}

// run runs kubectl, which must succeed, and returns what it printed.
func (k kubectl) run(args ...string) string {
	k.t.Helper()
	return k.feed("", args...)
}

// feed is run with a standard input.
func (k kubectl) feed(stdin string, args ...string) string {
	k.t.Helper()
	stdout, stderr, ok := k.try(stdin, args...)
	if !ok {
		k.t.Fatalf("kubectl %s: %s%s", strings.Join(args, " "), stdout, stderr)
	}
	return stdout
}

// fail runs kubectl, which must fail with a message that contains want.
func (k kubectl) fail(want, stdin string, args ...string) {
	k.t.Helper()
	stdout, stderr, ok := k.try(stdin, args...)
	if ok || !strings.Contains(stderr, want) {
		k.t.Errorf("kubectl %s: success=%v, printed %q and %q; want a failure that says %q", strings.Join(args, " "), ok, stdout, stderr, want)
	}
}

// columns returns the fields of each line of a table, without what changes from run to run (ages, addresses).
func columns(table string) [][]string {
	var rows [][]string
	for _, line := range strings.Split(strings.TrimSpace(table), "\n") {
		rows = append(rows, strings.Fields(line))
	}
	return rows
}
