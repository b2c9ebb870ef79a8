package apiserver

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// largestApply is the most that is looked at of a patch: what is applied is small.
const largestApply = 1 << 20

// withAppliedLists has `kubectl apply` come to what the manifest says where a list has two elements of one key: the ports of name servers, which have one
// number by two protocols, and variables that are set twice. A strategic merge patch knows the ports of a service by their numbers alone: the second one of a
// number is merged into the first, or both go with one of them. The patch of `kubectl apply` has the whole manifest with it, as an annotation, and where keys
// do not tell elements apart that has the word.
func withAppliedLists(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		kind, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
		if !ok || info.Verb != "patch" || info.Subresource != "" || kind != string(types.StrategicMergePatchType) || req.Body == nil {
			next.ServeHTTP(w, req)
			return
		}
		made := unmistakable[info.APIGroup+"/"+info.Resource]
		if made == nil {
			next.ServeHTTP(w, req)
			return
		}
		patch, err := io.ReadAll(io.LimitReader(req.Body, largestApply))
		rest := io.Reader(req.Body)
		if err != nil {
			rest = failing{err}
		} else if len(patch) < largestApply {
			if whole := wholeLists(patch, made); whole != nil {
				patch, req.ContentLength = whole, int64(len(whole))
			}
		}
		req.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(patch), rest), req.Body}
		next.ServeHTTP(w, req)
	})
}

// unmistakable are the resources that are looked at, and what puts the lists of a patch's spec right by that of the manifest. It says whether it changed any.
var unmistakable = map[string]func(spec, manifest members) bool{
	"/services":               func(spec, manifest members) bool { return whole(spec, manifest, "ports", "port") },
	"/replicationcontrollers": template,
	"apps/daemonsets":         template,
	"apps/deployments":        template,
	"apps/replicasets":        template,
	"apps/statefulsets":       template,
}

// failing is what is left of a body that could not be read.
type failing struct{ err error }

// Read implements io.Reader.
func (f failing) Read([]byte) (int, error) { return 0, f.err }

// members is an object of which most is let be as it is written.
type members map[string]json.RawMessage

// at is an object that is a member of this one; nil: there is none.
func (m members) at(name string) (of members) {
	if json.Unmarshal(m[name], &of) != nil {
		return nil
	}
	return of
}

// put writes a member.
func (m members) put(name string, value any) {
	if raw, err := json.Marshal(value); err == nil { // what was read as JSON can be written
		m[name] = raw
	}
}

// wholeLists is a patch with all the elements of the manifest that it comes from, in place of a change of them that does not tell them apart. nil: it is to stay
// as it is.
func wholeLists(patch []byte, made func(spec, manifest members) bool) []byte {
	var all, manifest members
	var meta struct {
		Annotations map[string]*string `json:"annotations"`
	}
	if json.Unmarshal(patch, &all) != nil || json.Unmarshal(all["metadata"], &meta) != nil {
		return nil
	}
	spec, applied := all.at("spec"), meta.Annotations[corev1.LastAppliedConfigAnnotation]
	if spec == nil || applied == nil || json.Unmarshal([]byte(*applied), &manifest) != nil || !made(spec, manifest.at("spec")) {
		return nil
	}
	all.put("spec", spec)
	whole, err := json.Marshal(all)
	if err != nil {
		return nil
	}
	return whole
}

// template puts the containers of a pod's template right.
func template(spec, manifest members) (changed bool) {
	to, from := spec.at("template"), manifest.at("template").at("spec")
	pod := to.at("spec")
	for _, list := range []string{"containers", "initContainers"} {
		var containers, wanted []members
		if json.Unmarshal(pod[list], &containers) != nil || json.Unmarshal(from[list], &wanted) != nil {
			continue
		}
		ours := false
		for _, c := range containers {
			for _, w := range wanted {
				if c["name"] != nil && bytes.Equal(c["name"], w["name"]) {
					ports, env := whole(c, w, "ports", "containerPort"), whole(c, w, "env", "name")
					ours = ours || ports || env
				}
			}
		}
		if ours {
			pod.put(list, containers)
			changed = true
		}
	}
	if changed {
		to.put("spec", pod)
		spec.put("template", to)
	}
	return changed
}

// whole replaces a change of a list by all of the list in a manifest, if the change is not one to what the manifest says.
func whole(patch, manifest members, list, key string) bool {
	var change, wanted []members
	if json.Unmarshal(patch[list], &change) != nil || json.Unmarshal(manifest[list], &wanted) != nil || !ambiguous(change, wanted, key) {
		return false
	}
	patch.put(list, append([]members{{"$patch": json.RawMessage(`"replace"`)}}, wanted...))
	delete(patch, "$setElementOrder/"+list)
	return true
}

// ambiguous says that a change of elements by their keys is not one to what a manifest says: two of its elements have one key, or the key of one of them is
// taken away.
func ambiguous(change, manifest []members, key string) bool {
	wanted := map[string]bool{}
	twice := false
	for _, of := range manifest {
		k := string(of[key])
		if k == "" || of["$patch"] != nil {
			return false
		}
		twice = twice || wanted[k]
		wanted[k] = true
	}
	for _, of := range change {
		if string(of["$patch"]) == `"delete"` && wanted[string(of[key])] {
			return true
		}
	}
	return twice && len(change) > 0
}
