package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/executor/client"
	"monopod.dev/monopod/internal/executor/launch"
)

// openExecutor finds the executor, or starts it, and says why the one that runs is not the installed one, if it is not.
func (r *runtimeRole) openExecutor(ctx context.Context, binary string) error {
	dir, socket := executorDir(r.Config), filepath.Join(r.Config.RunDir, "executor.sock")
	found, err := launch.Ensure(ctx, launch.Config{Binary: binary, Build: r.Version, Socket: socket, Dir: dir,
		CgroupPath: filepath.Join(r.Config.CgroupRoot, "executor"), LogFile: filepath.Join(dir, "executor.log")})
	if found.Behind != "" {
		r.Log.Warn("the executor is not the installed one", "role", "executor", "why", found.Behind)
	}
	if found.Former != "" {
		r.Log.Info("the executor goes on as the installed program, under its containers", "role", "executor", "build", found.Build, "before", found.Former, "took", found.Took.Round(time.Millisecond))
	}
	r.behind = found.Behind
	if err == nil {
		r.executor = client.New(client.Config{Socket: socket, Log: r.Log.With("role", "executor")}) // it is ended if something else fails
	}
	return err
}

func executorDir(c *v1alpha1.NodeConfiguration) string { return filepath.Join(c.RunDir, "executor") }

// executorBinary is the configured path, else the file beside our own, else the one in $PATH.
func executorBinary(c *v1alpha1.NodeConfiguration) (string, error) {
	const name = "monopod-executor"
	if path := c.Runtime.Executor; path != "" {
		if !isFile(path) {
			return "", fmt.Errorf("--executor (runtime.executor) names %s, which is not a file: build it with `make build`", path)
		}
		return path, nil
	}
	self, err := os.Executable()
	if err == nil {
		if beside := filepath.Join(filepath.Dir(self), name); isFile(beside) {
			return beside, nil
		}
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("%s is neither beside %s nor in $PATH: build it with `make build`, or name it with --executor", name, self)
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}
