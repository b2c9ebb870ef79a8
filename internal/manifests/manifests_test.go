package manifests_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/manifests"
	"monopod.dev/monopod/test/apitest"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ name, raw, want, fault string }{
		{"one", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", "a", ""},
		{"documents, comments and empty ones", "# c\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n---\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n", "a b", ""},
		{"JSON", `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}`, "a", ""},
		{"a list", "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Secret, metadata: {name: a}}, {apiVersion: v1, kind: Secret, metadata: {name: b}}]}", "a b", ""},
		{"nothing", "", "", ""},
		{"no YAML", "a: [", "", "document 1"},
		{"a key twice", "{apiVersion: v1, kind: ConfigMap, kind: Secret, metadata: {name: a}}", "", "document 1"},
		{"text", "hello", "", "document 1"},
		{"no name", "{apiVersion: v1, kind: Pod, metadata: {generateName: a}}", "", "metadata.name is missing"},
		{"no kind", "{apiVersion: v1, metadata: {name: a}}", "", "kind is missing"},
		{"no version", "{kind: Pod, metadata: {name: a}}", "", "apiVersion is missing"},
		{"no name in a list", "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Secret}]}", "", "item 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects, err := manifests.Parse([]byte(c.raw))
			var names []string
			for _, o := range objects {
				names = append(names, o.GetName())
			}
			if got := strings.Join(names, " "); c.fault == "" && (got != c.want || err != nil) || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
				t.Errorf("got %q, error %v; want %q, %q", got, err, c.want, c.fault)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Secret, metadata: {name: a}}]}\n---\n# c\n"))
	f.Add([]byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": 1}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		objects, err := manifests.Parse(raw)
		if err != nil {
			return
		}
		for _, o := range objects {
			if o.GetKind() == "" || o.GetName() == "" {
				t.Errorf("an object without a kind or a name: %v", o)
			}
		}
	})
}

func configMap(name, value string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {key: " + value + "}\n"
}

func write(t *testing.T, dir, file, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRead: which files are read, and what becomes of those that cannot be.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", configMap("a", "1"))
	write(t, dir, "b.yml", configMap("b", "1")+"---\n"+strings.Replace(configMap("a", "2"), "{name", "{namespace: default, name", 1))
	write(t, dir, "c.json", `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "other"}}`)
	write(t, dir, "d.yaml", configMap("d", "1")+"---\n"+configMap("d", "2"))
	write(t, dir, "e.yaml", strings.Repeat("#", 4<<20))
	write(t, dir, ".hidden.yaml", "a: [")
	write(t, dir, "README", "a: [")
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "f.yaml")); err != nil {
		t.Fatal(err)
	}
	got, err := manifests.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var documents []string
	for _, d := range got.Documents {
		documents = append(documents, d.File+":"+d.Object.GetName())
	}
	if s := strings.Join(documents, " "); s != "a.yaml:a c.json:c" {
		t.Errorf("documents %s", s)
	}
	for file, want := range map[string]string{"b.yml": "ConfigMap a is in a.yaml already", "d.yaml": "twice", "e.yaml": "divide it", "f.yaml": "no regular file"} {
		if err := got.Faults[file]; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s has the fault %v, want %q", file, err, want)
		}
	}
	if len(got.Faults) != 4 {
		t.Errorf("faults %v", got.Faults)
	}
}

func TestInventory(t *testing.T) {
	had := manifests.Inventory{
		{Group: "apps", Kind: "Deployment", Name: "web"}: {Version: "v1", File: "web.yaml"},
		{Kind: "Namespace", Name: "n"}:                   {Version: "v1", File: "a.yaml"},
	}
	raw, err := had.Encode()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"version":1,"objects":[{"version":"v1","kind":"Namespace","name":"n","file":"a.yaml"},{"group":"apps","version":"v1","kind":"Deployment","name":"web","file":"web.yaml"}]}`
	if raw != want {
		t.Errorf("got %s\nwant %s", raw, want)
	}
	if got, err := manifests.DecodeInventory(raw); err != nil || len(got) != 2 {
		t.Errorf("read again: %v, error %v", got, err)
	}
	if _, err := manifests.DecodeInventory(`{"version": 2}`); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("another version: %v", err)
	}
}

// TestDecide: in which order things are applied and deleted, and what of a file with a fault stays.
func TestDecide(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", configMap("late", "1")+"---\n{apiVersion: v1, kind: Service, metadata: {name: s}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: p}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: ns}}\n")
	write(t, dir, "bad.yaml", "a: [")
	reading, err := manifests.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	plan := manifests.Decide(reading, manifests.Inventory{
		{Kind: "Pod", Name: "p"}:           {Version: "v1", File: "old.yaml"},
		{Kind: "Pod", Name: "gone"}:        {Version: "v1", File: "old.yaml"},
		{Kind: "Namespace", Name: "gone"}:  {Version: "v1", File: "old.yaml"},
		{Kind: "Secret", Name: "unknown"}:  {Version: "v1", File: "bad.yaml"},
		{Kind: "ConfigMap", Name: "other"}: {Version: "v1", File: "a.yaml"},
	})
	var apply, prune []string
	for _, d := range plan.Apply {
		apply = append(apply, d.Object.GetKind())
	}
	for _, k := range plan.Prune {
		prune = append(prune, k.String())
	}
	if got := strings.Join(apply, " "); got != "Namespace ConfigMap Service Pod" {
		t.Errorf("applied: %s", got)
	}
	if got := strings.Join(prune, ", "); got != "Pod gone, ConfigMap other, Namespace gone" {
		t.Errorf("deleted: %s", got)
	}
	if len(plan.Before) != 8 || len(plan.After) != 5 {
		t.Errorf("%d objects in the inventory before and %d after, want 8 and 5", len(plan.Before), len(plan.After))
	}
}

// world is a directory whose objects are kept in an API server.
type world struct {
	*apitest.API
	dir string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{apitest.Start(t), t.TempDir()}
}

// keep keeps the directory until stop is called.
func (w *world) keep() (stop func()) {
	w.Helper()
	k, err := manifests.New(manifests.Config{Dir: w.dir, Kube: w.Config, NodeName: "n", Log: slog.New(slog.NewTextHandler(w.Output(), nil))})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	}
}

// values are the values of the config maps of default by their names.
func (w *world) values() string {
	w.Helper()
	list, err := w.Client.CoreV1().ConfigMaps("default").List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	var all []string
	for _, m := range list.Items {
		if m.Name != "kube-root-ca.crt" {
			all = append(all, m.Name+"="+m.Data["key"])
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (w *world) await(want string) {
	w.Helper()
	w.AwaitChange(func(context.Context) bool { return w.values() == want }, func() string { return "there is " + w.values() + ", want " + want },
		corev1.SchemeGroupVersion.WithResource("configmaps"), "default")
}

// awaitEvent waits for an event of the node.
func (w *world) awaitEvent(reason, part string) {
	w.Helper()
	said := ""
	w.AwaitChange(func(ctx context.Context) bool {
		list, err := w.Client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,involvedObject.name=n"})
		if err != nil {
			w.Fatal(err)
		}
		said = ""
		for _, e := range list.Items {
			said += e.Reason + ": " + e.Message + "\n"
			if e.Reason == reason && strings.Contains(e.Message, part) {
				return true
			}
		}
		return false
	}, func() string { return "no event " + reason + " of " + part + ", but\n" + said }, corev1.SchemeGroupVersion.WithResource("events"), "default")
}

func TestKeep(t *testing.T) {
	w := newWorld(t)
	write(t, w.dir, "a.yaml", configMap("a", "one"))
	stop := w.keep()
	w.await("a=one")
	write(t, w.dir, "b.yaml", configMap("b", "one")+"---\n"+configMap("c", "one"))
	w.await("a=one b=one c=one")
	write(t, w.dir, "b.yaml", configMap("b", "two"))
	w.await("a=one b=two")

	// What cannot be read, or is refused, stays as it was, and is told of.
	write(t, w.dir, "b.yaml", "a: [")
	w.awaitEvent("ManifestFailed", "b.yaml: document 1")
	write(t, w.dir, "a.yaml", configMap("a", "two"))
	w.await("a=two b=two")
	write(t, w.dir, "b.yaml", configMap("b", "three")+"---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: d}, dta: {}}")
	w.awaitEvent("ManifestFailed", "b.yaml: ConfigMap d: ")
	w.await("a=two b=three")
	write(t, w.dir, "b.yaml", configMap("b", "three"))
	w.awaitEvent("ManifestsApplied", w.dir)
	stop()

	// What goes while nobody is there goes at the next start; what somebody else has made anew stays.
	for _, f := range []string{"a.yaml", "b.yaml"} {
		if err := os.Remove(filepath.Join(w.dir, f)); err != nil {
			t.Fatal(err)
		}
	}
	maps := w.Client.CoreV1().ConfigMaps("default")
	if err := maps.Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Data: map[string]string{"key": "mine"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer w.keep()()
	w.await("b=mine")
}

// TestDirectoryGoes: nothing is deleted because the directory is not there, and what lies there when it comes again is applied.
func TestDirectoryGoes(t *testing.T) {
	w := newWorld(t)
	w.dir = filepath.Join(w.dir, "manifests")
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, w.dir, "a.yaml", configMap("a", "one"))
	defer w.keep()()
	w.await("a=one")
	if err := os.Rename(w.dir, w.dir+"-away"); err != nil {
		t.Fatal(err)
	}
	w.awaitEvent("ManifestFailed", "is not there; what was applied from it stays")
	write(t, w.dir+"-away", "b.yaml", configMap("b", "one"))
	if got := w.values(); got != "a=one" {
		t.Errorf("there is %s", got)
	}
	if err := os.Rename(w.dir+"-away", w.dir); err != nil {
		t.Fatal(err)
	}
	w.await("a=one b=one")
}

// TestKeptBefore: an object is in the inventory before it is there, so that whoever is killed then finds it again.
func TestKeptBefore(t *testing.T) {
	w := newWorld(t)
	write(t, w.dir, "a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: later}\n")
	k, err := manifests.New(manifests.Config{Dir: w.dir, Kube: w.Config, NodeName: "n"})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Sync(t.Context()); !apierrors.IsNotFound(err) {
		t.Fatalf("applied to a namespace that is not there: %v", err)
	}
	stored, err := w.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), "monopod-manifests", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := manifests.DecodeInventory(stored.Data["inventory.json"]); err != nil || len(v) != 1 {
		t.Errorf("inventory %v, error %v", v, err)
	}
}
