package agent

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/loglinks"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/agent/volumes"
)

// aNode is what knows of pods: the API server, the workers and the runtime. meanwhile is what happens while the runtime answers.
type aNode struct {
	pods, workers, held []types.UID
	meanwhile           func()
}

func (n *aNode) Pods(context.Context) (map[types.UID]podspec.Ref, error) {
	if n.meanwhile != nil {
		n.meanwhile()
	}
	all := map[types.UID]podspec.Ref{}
	for _, uid := range n.held {
		all[uid] = podspec.Ref{UID: uid}
	}
	return all, nil
}

func (n *aNode) Containers(context.Context) ([]cri.Container, error) { return nil, nil }

type aRoster struct{ *aNode }

func (r aRoster) Has(uid types.UID) bool { return slices.Contains(r.workers, uid) }

func (r aRoster) Pods() (all []*v1.Pod) {
	for _, uid := range r.pods {
		all = append(all, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}})
	}
	return all
}

type someCgroups struct{ uids []types.UID }

func (c *someCgroups) UIDs() ([]types.UID, error) { return slices.Clone(c.uids), nil }

func (c *someCgroups) Remove(uid types.UID) error {
	c.uids = slices.DeleteFunc(c.uids, func(has types.UID) bool { return has == uid })
	return nil
}

// TestRemains: what pods left that nobody knows is removed, and nothing of a pod that the API server, the runtime or a worker has, nor of one that comes while
// the runtime is asked.
func TestRemains(t *testing.T) {
	files := volumes.New(volumes.Config{Dir: filepath.Join(t.TempDir(), "pods"), Log: slog.New(slog.DiscardHandler)})
	cgroups := &someCgroups{}
	begin := func(uids ...types.UID) {
		cgroups.uids = append(cgroups.uids, uids...)
		for _, uid := range uids {
			if err := files.MakePodDir(uid); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin("bound", "going", "held", "gone")
	node := &aNode{pods: []types.UID{"bound"}, workers: []types.UID{"bound", "going"}, held: []types.UID{"held"}}
	node.meanwhile = func() {
		node.pods = append(node.pods, "new")
		begin("new")
	}
	left := &remains{
		runtime: node, files: files, cgroups: cgroups, links: loglinks.New(loglinks.Config{}), logsDir: filepath.Join(t.TempDir(), "logs"),
		log: slog.New(slog.DiscardHandler),
	}
	if err := left.sort(t.Context(), aRoster{node}); err != nil {
		t.Fatal(err)
	}
	want := []types.UID{"bound", "going", "held", "new"}
	dirs, err := files.UIDs()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(dirs)
	slices.Sort(cgroups.uids)
	if !slices.Equal(dirs, want) || !slices.Equal(cgroups.uids, want) {
		t.Errorf("left are the directories of %v and the cgroups of %v, want %v", dirs, cgroups.uids, want)
	}
}
