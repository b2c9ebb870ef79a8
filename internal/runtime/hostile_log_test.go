package runtime_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/runtime"
	"monopod.dev/monopod/internal/runtime/container/life"
)

// TestContainerOwnsLogDirectory: a container that has the directory of all logs mounted, and writes in it, makes nobody write elsewhere:
// not at a create, a reopen, a rotation, nor after the executor's worker was replaced.
func TestContainerOwnsLogDirectory(t *testing.T) {
	n := prepareNode(t)
	n.change = func(c *runtime.Config) { c.LogRotation = life.LogRotation{MaxBytes: 4096, MaxFiles: 2} }
	startNode(n)
	// The administrator has the logs elsewhere, and files beside them that are nobody's log.
	disk, victims := filepath.Join(n.dir, "disk"), filepath.Join(n.dir, "victims")
	n.check(os.MkdirAll(disk, 0o755))
	n.check(os.Symlink("disk", filepath.Join(n.dir, "logs")))
	n.check(os.MkdirAll(filepath.Join(victims, "later"), 0o755))
	for _, name := range []string{"victim", "later/0.log"} {
		n.check(os.WriteFile(filepath.Join(victims, name), []byte("precious\n"), 0o600))
	}
	sb, other := n.run("bad"), n.run("other")
	cfg := shell("attacker", "echo started; until [ -e /logs/go ]; do sleep 0.02; done; i=0; while :; do i=$((i+1)); echo line $i 0123456789012345678901234567890123456789; done")
	cfg.Mounts = []*cri.Mount{{HostPath: disk, ContainerPath: "/logs"}, {HostPath: victims, ContainerPath: "/victims", Readonly: true}}
	id := n.launch(sb, cfg)
	n.eventually("its log, behind the administrator's link", func() bool {
		raw, err := os.ReadFile(filepath.Join(disk, "bad/attacker/0.log"))
		return err == nil && strings.HasSuffix(string(raw), " started\n")
	})
	// It puts a link in the place of its log, and of the folders of containers and of a pod that are still to come.
	n.exec(id, "sh", "-c", "ln -sf "+victims+"/victim /logs/bad/attacker/0.log && ln -s "+victims+"/later /logs/bad/later && ln -s "+victims+" /logs/other && ls /logs")
	_, err := n.rt.ReopenContainerLog(n.ctx, &cri.ReopenContainerLogRequest{ContainerId: id})
	wantCode(t, err, codes.FailedPrecondition, "regular file")
	for sandbox, name := range map[string]string{sb: "later", other: "c"} {
		_, err := n.tryCreate(sandbox, shell(name, "echo pwned"))
		wantCode(t, err, codes.InvalidArgument, "log_path", "link")
	}
	// The writer goes on: in the file that it has, then in new ones, which take the place of the link.
	before, err := n.executor.Hello(n.ctx)
	n.check(err)
	n.killWorker()
	n.eventually("another worker", func() bool {
		now, err := n.executor.Hello(n.ctx)
		return err == nil && now.WorkerPID != before.WorkerPID
	})
	n.check(os.WriteFile(filepath.Join(disk, "go"), nil, 0o644))
	n.exec(id, "sh", "-c", "rm /logs/bad/attacker/0.log")
	n.eventually("the log to be reopened", func() bool {
		_, err := n.rt.ReopenContainerLog(n.ctx, &cri.ReopenContainerLogRequest{ContainerId: id})
		return err == nil
	})
	rotated := func() []string {
		files, err := filepath.Glob(filepath.Join(disk, "bad/attacker/0.log.*"))
		n.check(err)
		return files
	}
	n.eventually("a rotation", func() bool { return len(rotated()) > 0 })
	n.exec(id, "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do ln -sf "+victims+"/victim /logs/bad/attacker/0.log; ln -sf "+victims+"/victim /logs/bad/attacker/0.log.20200101-00000$i; done")
	n.eventually("the links to be rotated away", func() bool {
		info, err := os.Lstat(filepath.Join(disk, "bad/attacker/0.log"))
		old, _ := filepath.Glob(filepath.Join(disk, "bad/attacker/0.log.2020*"))
		return err == nil && info.Mode().IsRegular() && len(old) == 0
	})
	n.removeSandbox(sb)
	for _, name := range []string{"victim", "later/0.log"} {
		if raw, err := os.ReadFile(filepath.Join(victims, name)); err != nil || string(raw) != "precious\n" {
			t.Errorf("%s was changed: %.100q, %v", name, raw, err)
		}
	}
	if entries, err := os.ReadDir(victims); err != nil || len(entries) != 2 {
		t.Errorf("beside the logs: %v, %v", entries, err)
	}
	n.check(os.Remove(filepath.Join(disk, "other")))
	if out := n.output(other, shell("c", "echo fine")); out != "fine" {
		t.Errorf("another pod: %q", out)
	}
}
