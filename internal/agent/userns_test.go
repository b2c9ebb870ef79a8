package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func ownUsers(p *v1.Pod) { p.Spec.HostUsers = new(false) }

// idsOf are the IDs of the host that the pod's sandbox was made with, and its container, whose names are those of the pod.
func (b *bench) idsOf(name string) *cri.IDMapping {
	b.Helper()
	var id string
	b.eventually("the container of "+name+" runs", func() bool {
		ids := b.rt.Running(name)
		if len(ids) == 1 {
			id = ids[0]
		}
		return id != ""
	})
	mapping := func(what string, o *cri.NamespaceOption) *cri.IDMapping {
		u := o.GetUsernsOptions()
		if u.GetMode() != cri.NamespaceMode_POD || len(u.GetUids()) != 1 || len(u.GetGids()) != 1 || u.Uids[0].String() != u.Gids[0].String() {
			b.Fatalf("%s of %s: %v", what, name, o)
		}
		return u.Uids[0]
	}
	sandbox := mapping("sandbox", b.rt.Sandbox("uid-"+name).GetLinux().GetNamespaces().GetOptions())
	cfg := b.rt.Config(id)
	container := mapping("container", cfg.GetLinux().GetSecurityContext().GetNamespaceOptions())
	if sandbox.String() != container.String() {
		b.Errorf("the sandbox of %s has %v, its container %v", name, sandbox, container)
	}
	for _, m := range cfg.GetMounts() {
		if len(m.UidMappings) != 1 || len(m.GidMappings) != 1 || m.UidMappings[0].String() != sandbox.String() || m.GidMappings[0].String() != sandbox.String() {
			b.Errorf("%s: mount %v", name, m)
		}
	}
	return sandbox
}

// TestUserNamespaces: each pod with hostUsers: false has IDs of its own, from before its sandbox until it is gone, whatever happens to the agent meanwhile; and a
// runtime that cannot makes none.
func TestUserNamespaces(t *testing.T) {
	b := newBench(t)
	create := func(name string) {
		b.create(pod(name, ownUsers, func(p *v1.Pod) { p.Spec.Containers[0].Name = name }))
	}
	create("first")
	b.eventually("it is told that the runtime cannot", func() bool { return b.events()["FailedCreatePodSandBox"] > 0 })
	if b.rt.Sandbox("uid-first") != nil || strings.Contains(strings.Join(b.rt.Calls(), " "), "RunPodSandbox") {
		t.Error("a sandbox was made all the same")
	}
	record := func(name string) string { return filepath.Join(b.cfg.DataDir, "pods", "uid-"+name, "userns") }
	if _, err := os.Stat(record("first")); err == nil {
		t.Error("IDs were taken for a pod that cannot have them")
	}
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Handler: "plain"}
	if _, err := b.kube.NodeV1().RuntimeClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.create(pod("classed", ownUsers, func(p *v1.Pod) { p.Spec.RuntimeClassName = new("other") }))
	for _, why := range []string{"runtime does not support user namespaces", `RuntimeClass handler "plain" does not support user namespaces`} {
		b.eventually(why, func() bool {
			list, err := b.kube.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
			return err == nil && slices.ContainsFunc(list.Items, func(e v1.Event) bool {
				return e.Message == "Failed to create pod sandbox: can't set `spec.hostUsers: false`, "+why
			})
		})
	}
	b.rt.HaveUserNamespaces(true)
	first := b.idsOf("first")
	create("second")
	second := b.idsOf("second")
	if first.HostId == 0 || first.ContainerId != 0 || first.Length != 65536 || second.HostId == first.HostId {
		t.Errorf("%v and %v", first, second)
	}
	b.create(pod("plain", func(p *v1.Pod) { p.Spec.Containers[0].Name = "plain" }))
	b.eventually("the plain pod runs", func() bool { return len(b.rt.Running("plain")) == 1 })
	if cfg := b.rt.Config(b.rt.Running("plain")[0]); cfg.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions() != nil || cfg.Mounts[0].UidMappings != nil {
		t.Errorf("a pod of the host's users: %v", cfg)
	}

	b.stop()
	b.start()
	again := func(name string) { // its next container is made by the agent that came after
		id := b.rt.Running(name)[0]
		b.rt.Exit(id, 1)
		b.eventually(name+" is started again", func() bool { ids := b.rt.Running(name); return len(ids) == 1 && ids[0] != id })
	}
	again("first")
	if got := b.idsOf("first"); got.HostId != first.HostId {
		t.Errorf("the first one has %v, then %v", first, got)
	}
	create("third")
	if third := b.idsOf("third"); third.HostId == first.HostId || third.HostId == second.HostId {
		t.Errorf("%v, %v, %v", first, second, third)
	}

	// The records are lost: who runs keeps what it has, and nobody else gets it.
	b.stop()
	for _, name := range []string{"first", "second", "third"} {
		if err := os.Remove(record(name)); err != nil {
			t.Fatal(err)
		}
	}
	b.start()
	create("late")
	if late := b.idsOf("late"); late.HostId == first.HostId || late.HostId == second.HostId {
		t.Errorf("a pod gets %v, which others have: %v, %v", late, first, second)
	}
	again("second")
	if got := b.idsOf("second"); got.HostId != second.HostId {
		t.Errorf("the second one has %v, then %v", second, got)
	}

	b.delete("first", 0)
	b.noPod("first")
	b.eventually("its record is gone", func() bool { _, err := os.Stat(record("first")); return os.IsNotExist(err) })
	create("fourth")
	if fourth := b.idsOf("fourth"); fourth.HostId != first.HostId {
		t.Errorf("the fourth one has %v, want those of the one that is gone, %v", fourth, first)
	}
}
