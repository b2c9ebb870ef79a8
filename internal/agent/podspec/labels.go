package podspec

import (
	"encoding/json"
	"hash/fnv"
	"maps"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/pkg/types"
)

// Annotations of containers. All but the last two are the kubelet's.
const (
	annotationHash         = "io.kubernetes.container.hash"
	annotationRestartCount = "io.kubernetes.container.restartCount"
	annotationMessagePath  = "io.kubernetes.container.terminationMessagePath"
	annotationMessagePol   = "io.kubernetes.container.terminationMessagePolicy"
	annotationGrace        = "io.kubernetes.pod.terminationGracePeriod"
	annotationPorts        = "io.kubernetes.container.ports"
	// annotationStep is the back-off step of plan.Container.Step.
	annotationStep = "monopod.dev/backoff-step"
	// annotationVolumeImages are plan.Container.VolumeImages, in JSON.
	annotationVolumeImages = "monopod.dev/volume-images"
)

// Ref names a pod.
type Ref struct {
	UID             types.UID
	Namespace, Name string
}

// RefOf reads the pod's name from the labels of a sandbox or container. ok is false where they were not made by a
// node's agent: each of the three becomes a part of paths whose files are removed, so that it must be an element of one.
func RefOf(labels map[string]string) (ref Ref, ok bool) {
	ref = Ref{
		UID:       types.UID(labels[kubelet.KubernetesPodUIDLabel]),
		Namespace: labels[kubelet.KubernetesPodNamespaceLabel],
		Name:      labels[kubelet.KubernetesPodNameLabel],
	}
	return ref, isElement(string(ref.UID)) && isElement(ref.Namespace) && isElement(ref.Name)
}

// isElement says that a name is one element of a path, which leads nowhere else.
func isElement(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// Selector is the label selector of all that belongs to a pod.
func Selector(uid types.UID) map[string]string {
	return map[string]string{kubelet.KubernetesPodUIDLabel: string(uid)}
}

// ContainerSelector is the label selector of a pod's containers of one name.
func ContainerSelector(uid types.UID, name string) map[string]string {
	return map[string]string{kubelet.KubernetesPodUIDLabel: string(uid), kubelet.KubernetesContainerNameLabel: name}
}

// Facts are what the agent knows of a container from its labels and annotations.
type Facts struct {
	Name         string
	RestartCount int32
	Step         int
	Hash         string
	// MessagePolicy says where the termination message is found when there is none in the file.
	MessagePolicy v1.TerminationMessagePolicy
	// VolumeImages are the images that its volumes show, by the volumes' names.
	VolumeImages map[string]string
}

// FactsOf reads a container's facts. What cannot be read is zero: the labels are outside data.
func FactsOf(labels, annotations map[string]string) Facts {
	count, err := strconv.ParseInt(annotations[annotationRestartCount], 10, 32)
	if err != nil || count < 0 {
		count = 0
	}
	step, err := strconv.Atoi(annotations[annotationStep])
	if err != nil || step < 0 {
		step = 0
	}
	var images map[string]string
	if raw := annotations[annotationVolumeImages]; raw != "" && json.Unmarshal([]byte(raw), &images) != nil {
		images = nil
	}
	return Facts{
		Name:          labels[kubelet.KubernetesContainerNameLabel],
		RestartCount:  int32(count),
		Step:          step,
		Hash:          annotations[annotationHash],
		MessagePolicy: v1.TerminationMessagePolicy(annotations[annotationMessagePol]),
		VolumeImages:  images,
	}
}

// sandboxLabels are the pod's own labels and the kubelet's.
func sandboxLabels(pod *v1.Pod) map[string]string {
	labels := maps.Clone(pod.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, podLabels(pod))
	return labels
}

func podLabels(pod *v1.Pod) map[string]string {
	return map[string]string{
		kubelet.KubernetesPodNameLabel:      pod.Name,
		kubelet.KubernetesPodNamespaceLabel: pod.Namespace,
		kubelet.KubernetesPodUIDLabel:       string(pod.UID),
	}
}

func containerLabels(pod *v1.Pod, c *v1.Container) map[string]string {
	labels := podLabels(pod)
	labels[kubelet.KubernetesContainerNameLabel] = c.Name
	return labels
}

func containerAnnotations(in *ContainerInput) map[string]string {
	c := in.Container
	a := map[string]string{
		annotationHash:         Hash(c),
		annotationRestartCount: strconv.FormatUint(uint64(in.Attempt), 10),
		annotationMessagePath:  c.TerminationMessagePath,
		annotationMessagePol:   string(c.TerminationMessagePolicy),
		annotationStep:         strconv.Itoa(in.Step),
	}
	if g := in.Pod.Spec.TerminationGracePeriodSeconds; g != nil {
		a[annotationGrace] = strconv.FormatInt(*g, 10)
	}
	if len(c.Ports) > 0 {
		if ports, err := json.Marshal(c.Ports); err == nil {
			a[annotationPorts] = string(ports)
		}
	}
	if len(in.Images) > 0 {
		refs := map[string]string{}
		for volume, image := range in.Images {
			refs[volume] = imageRef(image)
		}
		if raw, err := json.Marshal(refs); err == nil {
			a[annotationVolumeImages] = string(raw)
		}
	}
	return a
}

// imageRef is what a container's imageID is for its own image: a digest of a repository, else the image's id.
func imageRef(image *cri.Image) string {
	if len(image.RepoDigests) > 0 {
		return image.RepoDigests[0]
	}
	return image.Id
}

// Hash is a hash of what a container cannot be changed in without being made anew: its name and its image, which are
// what the API allows to be edited in place.
func Hash(c *v1.Container) string {
	h := fnv.New32a()
	h.Write([]byte(c.Name + "\x00" + c.Image))
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}
