package archtest

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "monopod.dev/monopod/"

// A layer is a part of the tree, with the parts of this module that its non-test code may import beside its own. A package
// belongs to the layer with the longest matching name.
type layer struct {
	name string
	may  []string
	why  string
}

var layers = []layer{
	{"cmd/monopod", []string{"api", "internal/config", "internal/node", "internal/host/probe", "internal/runtime/imageservice", "internal/devices/report", "internal/fsck",
		"internal/admin/client", "internal/admin/protocol", "internal/cdispec", "internal/devices/contract",
		"internal/devices/hostdevice", "internal/devices/hostnode", "internal/devices/hostspecs", "internal/kit"},
		"the command line knows the composition root, the clients of a running node and files that people write, never a role"},
	{"cmd/monopod-executor", []string{"internal/executor", "internal/host"}, "the executor outlives monopod and must stay small"},
	{"cmd/kubectl", nil, "kubectl is the upstream command, unchanged"},
	{"api", nil, "configuration types hold no logic"},
	{"internal/config", []string{"api", "internal/controllers/catalog", "internal/kit"}, "reading a configuration needs nothing of the node"},
	{"internal/node", []string{"api", "internal/config", "internal/admin", "internal/apiserver", "internal/controllers", "internal/manifests", "internal/dns", "internal/netpolicy", "internal/agent", "internal/proxy", "internal/runtime", "internal/devices", "internal/storage",
		"internal/image", "internal/network", "internal/fsck", "internal/executor/client", "internal/executor/launch", "internal/executor/protocol", "internal/state", "internal/host",
		"internal/kit"},
		"the composition root is the only package that knows every role"},
	{"internal/manifests", nil, "what lies in a directory is applied as anybody would: it knows the Kubernetes API, by client-go, and nothing else"},
	{"internal/admin", []string{"internal/devices", "internal/host/unixsocket"}, "what a running node tells: values of the devices, and what the composition root says of the rest"},
	{"internal/admin/client", []string{"internal/admin/protocol", "internal/devices/report"}, "a client knows what is spoken, not who speaks it"},
	{"internal/admin/protocol", nil, "what is spoken over the administration socket, for both sides"},
	{"internal/pods", []string{"internal/kit"}, "what a pod says is a pure function, of which the roles know nothing but this"},
	{"internal/apiserver", []string{"internal/pods", "internal/controllers/catalog", "internal/kit"}, "a role reaches another one only through a public protocol"},
	{"internal/controllers", []string{"internal/pods", "internal/kit"},
		"upstream's controllers can stand in its place, and ours beside anybody's API server: it knows the Kubernetes API, by client-go, and nothing else"},
	{"internal/controllers/catalog", nil, "which controllers there are is a table, of which the API server makes their rights and the configuration their names, as neither may know a controller"},
	{"internal/dns", []string{"internal/kit"}, "it knows the Kubernetes API, by client-go, and name servers; nothing else of the node"},
	{"internal/dns/answer", nil, "what is said to a question is a pure function of it and of a view of the cluster"},
	{"internal/dns/message", nil, "messages are read and written by pure functions"},
	{"internal/netpolicy", []string{"internal/host/ruleset", "internal/network/podnet", "internal/kit"}, "it knows the Kubernetes API, by client-go, and the kernel; whose addresses there are the composition root tells it"},
	{"internal/netpolicy/compile", []string{"internal/kit"}, "what policies mean is a pure function"},
	{"internal/agent", []string{"internal/pods", "internal/devices", "internal/host", "internal/kit"},
		"the agent reaches containers only through CRI, and the API only through client-go, even in one process"},
	{"internal/agent/plan", []string{"internal/kit/ids", "internal/pods"}, "the plan is a pure function"},
	{"internal/agent/admit", []string{"internal/pods"}, "whether the node takes a pod is a pure function, and a ledger of what it has taken"},
	{"internal/agent/podcgroup", []string{"internal/pods", "internal/agent/podspec", "internal/agent/admit", "internal/host/cgroup", "internal/host/systemd"},
		"the cgroups of pods are made in one place, whatever the runtime is"},
	{"internal/agent/imagegc", []string{"internal/kit/ids"}, "which images go is a pure function"},
	{"internal/agent/probes/judge", nil, "when a probe is due, and what its answers mean, is a pure function"},
	{"internal/agent/userns", nil, "which IDs of the host a pod gets is a pure function"},
	{"internal/agent/relist", nil, "when a runtime is listed, and whether its events are believed, is a pure function"},
	{"internal/agent/shutdown/turns", nil, "whose turn it is to end is a pure function"},
	{"internal/agent/shutdown/logind", nil, "it knows systemd-logind, and of the node only that it is to get ready"},
	{"internal/cdispec", nil, "those who count devices and those who inject them read the same specs"},
	{"internal/devices", []string{"internal/cdispec", "internal/state", "internal/host", "internal/kit"}, "devices are usable without the agent"},
	{"internal/devices/alloc", []string{"internal/devices/inventory"}, "the choice of devices is a pure function"},
	{"internal/devices/answer", nil, "how the answers of several sources are made one is a pure function"},
	{"internal/devices/book", []string{"internal/kit/ordered", "internal/devices/alloc", "internal/devices/answer", "internal/devices/inventory", "internal/devices/topology"},
		"who gets which devices, and who waits, is a pure function of the book and the world"},
	{"internal/devices/topology", []string{"internal/devices/inventory"}, "which NUMA nodes devices come from is a pure function"},
	{"internal/devices/contract", []string{"internal/cdispec", "internal/devices/plugin", "internal/devices/inventory", "internal/devices/source", "internal/host/mountns", "internal/kit"},
		"what a device plugin is tried with is the node's own code, without a node"},
	{"internal/devices/contract/judge", nil, "what is right and wrong about a plugin is a pure function of what was observed"},
	{"internal/devices/inventory", nil, "an inventory is what a pure function chooses from"},
	{"internal/devices/hostdevice", []string{"internal/devices/inventory"}, "what spec comes of a host's device is a pure function"},
	{"internal/proxy", []string{"internal/network/podnet", "internal/host", "internal/kit"}, "the proxy knows services through the API and packets through the kernel; upstream's can stand in its place"},
	{"internal/storage", []string{"internal/host", "internal/kit"},
		"it could make volumes beside anybody's API server: it knows the Kubernetes API, by client-go, and the disk"},
	{"internal/storage/plan", []string{"internal/pods"}, "what becomes of a volume is a pure function"},
	{"internal/proxy/plan", []string{"internal/kit"}, "what is done with packets for a service is a pure function"},
	{"internal/runtime", []string{"internal/ocispec", "internal/cdispec", "internal/image", "internal/network", "internal/fsck",
		"internal/executor/protocol", "internal/state", "internal/host", "internal/kit"},
		"the runtime is usable under anybody's kubelet"},
	{"internal/ocispec", []string{"internal/host/cgroup/place", "internal/kit"}, "a specification is a pure function of what CRI, the image and CDI say"},
	{"internal/image", []string{"internal/fsck", "internal/host", "internal/kit"}, "below the runtime"},
	{"internal/fsck", nil, "what is wrong with a store is told in one form, which knows no store"},
	{"internal/network", []string{"internal/state", "internal/host", "internal/kit"}, "below the runtime"},
	{"internal/network/podnet", nil, "what a network is called and numbered by, for all who know its packets, is a pure function"},
	{"internal/executor", []string{"internal/host", "internal/kit"}, "the executor outlives monopod and must stay small"},
	{"internal/state", []string{"internal/kit"}, "durable tables know nothing of what they hold"},
	{"internal/host", []string{"internal/kit"}, "system calls with a name, below everything"},
	{"internal/kit", nil, "the lowest layer: it knows nothing of Monopod"},
	{"internal/archtest", nil, "a test only"},
	{"devicetest", []string{"internal/devices/plugin", "internal/devices/answer", "internal/devices/source"}, "authors of device plugins get the node's own code, and nothing else of the node"},
	{"hack", []string{"internal/apiserver/scheme"}, "what is generated follows from the scheme"},
	{"examples", []string{"internal/image/ociarchive"}, "the example is a user's program"},
	{"test", []string{"api", "internal", "cmd", "examples"}, "tests may use anything"},
}

// pure packages decide and do nothing else, and import no others of this module.
var pure = []string{"internal/kit/apifields", "internal/kit/ids", "internal/host/cgroup/place", "internal/pods", "internal/controllers/catalog", "internal/agent/plan", "internal/agent/admit", "internal/agent/imagegc", "internal/agent/relist", "internal/agent/userns", "internal/agent/shutdown/turns", "internal/agent/probes/judge",
	"internal/devices/alloc", "internal/devices/answer", "internal/devices/book", "internal/devices/topology", "internal/devices/inventory", "internal/devices/contract/judge",
	"internal/devices/hostdevice", "internal/dns/answer", "internal/dns/message", "internal/executor/worker/resources", "internal/netpolicy/compile", "internal/network/podnet", "internal/kit/iprange", "internal/kit/release", "internal/kit/oneline", "internal/kit/ordered", "internal/ocispec", "internal/proxy/plan", "internal/storage/plan"}

// impure are the packages that a pure one must not import, and impureCalls the functions of allowed packages that read the
// world.
var (
	impure      = []string{"os", "os/exec", "net", "net/http", "syscall", "golang.org/x/sys/unix", "context", "log", "log/slog", "math/rand", "math/rand/v2"}
	impureCalls = []string{"time.Now", "time.Since", "time.Until", "time.After", "time.AfterFunc", "time.NewTimer", "time.NewTicker", "time.Sleep", "time.Tick"}
)

type goPackage struct {
	ImportPath string
	Dir        string
	Imports    []string
	GoFiles    []string
	CgoFiles   []string
}

func list(t *testing.T, args ...string) []goPackage {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Dir,Imports,GoFiles,CgoFiles"}, args...)...)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // so that packages of which a part is C are not left out
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p goPackage
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func within(pkg, part string) bool { return pkg == part || strings.HasPrefix(pkg, part+"/") }

func layerOf(pkg string) *layer {
	var best *layer
	for i := range layers {
		if within(pkg, layers[i].name) && (best == nil || len(layers[i].name) > len(best.name)) {
			best = &layers[i]
		}
	}
	return best
}

func TestImports(t *testing.T) {
	for _, p := range list(t, "./...") {
		pkg := strings.TrimPrefix(p.ImportPath, module)
		l := layerOf(pkg)
		if l == nil {
			t.Errorf("%s belongs to no layer: add it to docs/ARCHITECTURE.md and to the table of this test", pkg)
			continue
		}
		for _, imp := range p.Imports {
			target, ours := strings.CutPrefix(imp, module)
			if !ours {
				continue
			}
			ok := layerOf(target) == l && !slices.Contains(pure, l.name) || within(target, l.name)
			for _, part := range l.may {
				ok = ok || within(target, part)
			}
			if !ok {
				t.Errorf("%s imports %s: %s", pkg, target, l.why)
			}
		}
	}
}

// TestTable: the table says nothing that is not so. Each row is of a package that there is, and each allowance is used.
func TestTable(t *testing.T) {
	all := list(t, "./...")
	uses := map[string][]string{} // by layer, the packages that its own import
	for _, p := range all {
		l := layerOf(strings.TrimPrefix(p.ImportPath, module))
		if l == nil {
			continue // TestImports tells
		}
		for _, imp := range p.Imports {
			if target, ours := strings.CutPrefix(imp, module); ours {
				uses[l.name] = append(uses[l.name], target)
			}
		}
	}
	there := func(name string) bool {
		return slices.ContainsFunc(all, func(p goPackage) bool { return within(strings.TrimPrefix(p.ImportPath, module), name) })
	}
	for _, name := range pure {
		if !there(name) {
			t.Errorf("there is no package %s, which is called pure", name)
		}
	}
	for i, l := range layers {
		if !there(l.name) {
			t.Errorf("there is no package %s, which has a row", l.name)
		}
		if slices.ContainsFunc(layers[:i], func(o layer) bool { return o.name == l.name }) {
			t.Errorf("%s has two rows", l.name)
		}
		for _, part := range l.may {
			if l.name != "test" && !slices.ContainsFunc(uses[l.name], func(target string) bool { return within(target, part) }) {
				t.Errorf("%s may import %s, and does not", l.name, part)
			}
		}
	}
}

// unlisted are parts whose packages docs/ARCHITECTURE.md does not name one by one.
var unlisted = []string{"examples", "hack", "test", "internal/apiserver/registry", "internal/apiserver/openapi"}

// item is what docs/ARCHITECTURE.md calls a package: its last element, with a slash behind it.
var item = regexp.MustCompile(`(?:^|[\s,(])((?:[a-z][a-z0-9-]*/)+)`)

// TestPage: docs/ARCHITECTURE.md names every package, and no other.
func TestPage(t *testing.T) {
	root := filepath.Join("..", "..")
	raw, err := os.ReadFile(filepath.Join(root, "docs", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(raw), "\n## Packages and who may import whom\n")
	section, _, _ = strings.Cut(section, "\nRoles never import each other")
	named := map[string]bool{}
	for _, m := range item.FindAllStringSubmatch(section, -1) {
		for part := range strings.SplitSeq(strings.Trim(m[1], "/"), "/") {
			named[part] = true
		}
	}
	parts := map[string]bool{}
	// By their files: which packages go list tells of depends on tags and on cgo.
	files, err := exec.Command("git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	packages := map[string]bool{}
	for file := range strings.Lines(string(files)) {
		file = strings.TrimSpace(file)
		pkg := path.Dir(file)
		packages[pkg] = packages[pkg] || strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go")
		for part := range strings.SplitSeq(pkg, "/") {
			parts[part] = true
		}
	}
	for pkg, product := range packages {
		if product && !named[path.Base(pkg)] && !slices.ContainsFunc(unlisted, func(part string) bool { return within(pkg, part) }) {
			t.Errorf("docs/ARCHITECTURE.md does not name %s", pkg)
		}
	}
	for name := range named {
		if !parts[name] {
			t.Errorf("docs/ARCHITECTURE.md names %s/, and there is no such package", name)
		}
	}
}

func TestPurePackages(t *testing.T) {
	for _, name := range pure {
		for _, p := range list(t, "./"+name+"/...") {
			for _, imp := range p.Imports {
				target, ours := strings.CutPrefix(imp, module)
				if slices.Contains(impure, imp) || ours && !slices.ContainsFunc(pure, func(p string) bool { return within(target, p) }) {
					t.Errorf("%s imports %s: it decides, and does nothing else", p.ImportPath, imp)
				}
			}
			for _, file := range p.GoFiles {
				checkPureFile(t, filepath.Join(p.Dir, file))
			}
		}
	}
}

func checkPureFile(t *testing.T, path string) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			t.Errorf("%s: a pure package starts no goroutine", fset.Position(n.Pos()))
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && slices.Contains(impureCalls, x.Name+"."+n.Sel.Name) {
				t.Errorf("%s: a pure package is told the time, it does not look", fset.Position(n.Pos()))
			}
		}
		return true
	})
}

// TestNoKubernetesModule: k8s.io/kubernetes is not a library, and brings the code that this project is there to write.
func TestNoKubernetesModule(t *testing.T) {
	for _, p := range list(t, "-deps", "./...") {
		if within(p.ImportPath, "k8s.io/kubernetes") {
			t.Errorf("the module graph reaches %s", p.ImportPath)
		}
	}
}
