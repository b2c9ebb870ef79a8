// Package persistentvolume serves the resource persistentvolumes of v1 and its subresource status: volumes that outlive pods, and whose they are.
package persistentvolume

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	helpers "k8s.io/component-helpers/storage/volume"

	"monopod.dev/monopod/internal/apiserver/registry/node"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
	"monopod.dev/monopod/internal/pods/defaults"
)

type volume = corev1.PersistentVolume

// Resource is the resource persistentvolumes.
func Resource() resource.Of[*volume, *corev1.PersistentVolumeList] {
	return resource.Of[*volume, *corev1.PersistentVolumeList]{
		Plural:     "persistentvolumes",
		Short:      []string{"pv"},
		Honours:    honours(),
		Default:    setDefaults,
		Prepare:    func(v *volume) { enter(v, corev1.VolumePending, metav1.Now()) },
		Create:     validate,
		Update:     validateUpdate,
		Warn:       warnings,
		WarnUpdate: func(v, _ *volume) []string { return warnings(v) },
		Status: &resource.Status[*volume]{
			Prepare: func(v, old *volume) { keepTransition(v, old, metav1.Now()) },
			Update:  validateStatus,
		},
		Fields:  func(v *volume) fields.Set { return fields.Set{"name": v.Name} }, // beside metadata.name, as upstream
		Store:   func(store *genericregistry.Store) { store.ReturnDeletedObject = true },
		Columns: columns(),
	}
}

// honours: volumes that the node mounts by itself, and those of CSI drivers. For all others there is a driver, or nothing any more.
func honours() apifields.Table {
	driver := func(name string) apifields.Verdict {
		return apifields.But("use a volume of the kind csi, of the driver " + name)
	}
	secret := apifields.All("Name", "Namespace")
	return apifields.Table{
		reflect.TypeFor[volume](): apifields.All("Spec").And(apifields.Left, "Status"),
		reflect.TypeFor[corev1.PersistentVolumeSpec](): apifields.All("Capacity", "PersistentVolumeSource", "AccessModes", "ClaimRef",
			"StorageClassName", "MountOptions", "VolumeMode", "NodeAffinity", "VolumeAttributesClassName").
			And(apifields.Verdict{
				Kind: apifields.Refuses, Accepts: apifields.Values(corev1.PersistentVolumeReclaimRetain, corev1.PersistentVolumeReclaimDelete), Remedy: "use Retain or Delete",
			}, "PersistentVolumeReclaimPolicy"),
		reflect.TypeFor[corev1.PersistentVolumeSource](): apifields.All("HostPath", "Local", "NFS", "CSI").
			And(driver("pd.csi.storage.gke.io"), "GCEPersistentDisk").
			And(driver("ebs.csi.aws.com"), "AWSElasticBlockStore").
			And(driver("cinder.csi.openstack.org"), "Cinder").
			And(driver("disk.csi.azure.com"), "AzureDisk").
			And(driver("file.csi.azure.com"), "AzureFile").
			And(driver("csi.vsphere.vmware.com"), "VsphereVolume").
			And(driver("pxd.portworx.com"), "PortworxVolume").
			And(driver("rbd.csi.ceph.com"), "RBD").
			And(driver("cephfs.csi.ceph.com"), "CephFS").
			And(driver("iscsi.csi.k8s.io"), "ISCSI").
			And(driver("fc.csi.k8s.io"), "FC").
			And(apifields.But("use a volume of the kind csi"), "FlexVolume", "Glusterfs", "Flocker", "Quobyte", "PhotonPersistentDisk", "ScaleIO", "StorageOS"),
		reflect.TypeFor[corev1.HostPathVolumeSource](): apifields.All("Path", "Type"),
		reflect.TypeFor[corev1.LocalVolumeSource]():    apifields.All("Path", "FSType"),
		reflect.TypeFor[corev1.NFSVolumeSource]():      apifields.All("Server", "Path", "ReadOnly"),
		reflect.TypeFor[corev1.CSIPersistentVolumeSource](): apifields.All("Driver", "VolumeHandle", "ReadOnly", "FSType", "VolumeAttributes", "ControllerPublishSecretRef",
			"NodeStageSecretRef", "NodePublishSecretRef", "ControllerExpandSecretRef", "NodeExpandSecretRef"),
		reflect.TypeFor[corev1.SecretReference]():         secret,
		reflect.TypeFor[corev1.ObjectReference]():         apifields.All("Kind", "Namespace", "Name", "UID", "APIVersion", "ResourceVersion", "FieldPath"),
		reflect.TypeFor[corev1.VolumeNodeAffinity]():      apifields.All("Required"),
		reflect.TypeFor[corev1.NodeSelector]():            apifields.All("NodeSelectorTerms"),
		reflect.TypeFor[corev1.NodeSelectorTerm]():        apifields.All("MatchExpressions", "MatchFields"),
		reflect.TypeFor[corev1.NodeSelectorRequirement](): apifields.All("Key", "Operator", "Values"),
	}
}

func setDefaults(v *volume) {
	if v.Status.Phase == "" {
		v.Status.Phase = corev1.VolumePending
	}
	if v.Spec.PersistentVolumeReclaimPolicy == "" {
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	}
	if v.Spec.VolumeMode == nil {
		v.Spec.VolumeMode = new(corev1.PersistentVolumeFilesystem)
	}
	if h := v.Spec.HostPath; h != nil && h.Type == nil {
		h.Type = new(corev1.HostPathUnset)
	}
	defaults.RoundUp(v.Spec.Capacity)
}

// enter begins a phase.
func enter(v *volume, phase corev1.PersistentVolumePhase, now metav1.Time) {
	v.Status.Phase, v.Status.LastPhaseTransitionTime = phase, &now
}

// keepTransition keeps the time at which the phase began, or notes it, where whoever writes the status does not.
func keepTransition(v, old *volume, now metav1.Time) {
	is, was := v.Status.LastPhaseTransitionTime, old.Status.LastPhaseTransitionTime
	switch same := v.Status.Phase == old.Status.Phase; {
	case same && is == nil:
		v.Status.LastPhaseTransitionTime = was
	case !same && (is == nil || is.Equal(was)):
		enter(v, v.Status.Phase, now)
	}
}

// mountOptionsAnnotation is where mount options stood once.
const mountOptionsAnnotation = "volume.beta.kubernetes.io/mount-options"

func warnings(v *volume) (list []string) {
	tell := func(at *field.Path, what string) { list = append(list, fmt.Sprintf("%s: %s", at, what)) }
	for _, old := range []struct{ key, instead string }{
		{corev1.BetaStorageClassAnnotation, `deprecated since v1.8; use "storageClassName" attribute instead`},
		{mountOptionsAnnotation, `deprecated since v1.31; use "mountOptions" attribute instead`},
	} {
		if _, ok := v.Annotations[old.key]; ok {
			tell(field.NewPath("metadata", "annotations").Key(old.key), old.instead)
		}
	}
	if a := v.Spec.NodeAffinity; a != nil && a.Required != nil {
		for i, term := range a.Required.NodeSelectorTerms {
			for j, e := range term.MatchExpressions {
				if told, ok := node.DeprecatedLabel(e.Key); ok {
					at := field.NewPath("spec", "nodeAffinity", "required", "nodeSelectorTerms").Index(i).Child("matchExpressions").Index(j).Child("key")
					tell(at, e.Key+" is "+told)
				}
			}
		}
	}
	return list
}

// Modes writes access modes as tables do.
func Modes(list []corev1.PersistentVolumeAccessMode) string {
	var short []string
	for _, mode := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"}} {
		if slices.Contains(list, mode.mode) {
			short = append(short, mode.short)
		}
	}
	return strings.Join(short, ",")
}

func columns() []resource.Column[*volume] {
	doc, status := corev1.PersistentVolumeSpec{}.SwaggerDoc(), corev1.PersistentVolumeStatus{}.SwaggerDoc()
	return []resource.Column[*volume]{
		{Name: "Name"},
		{Name: "Capacity", Doc: doc["capacity"], Value: func(v *volume) any { return v.Spec.Capacity.Storage().String() }},
		{Name: "Access Modes", Doc: doc["accessModes"], Value: func(v *volume) any { return Modes(v.Spec.AccessModes) }},
		{Name: "Reclaim Policy", Doc: doc["persistentVolumeReclaimPolicy"], Value: func(v *volume) any { return string(v.Spec.PersistentVolumeReclaimPolicy) }},
		{Name: "Status", Doc: status["phase"], Value: func(v *volume) any {
			if v.DeletionTimestamp != nil {
				return "Terminating"
			}
			return string(v.Status.Phase)
		}},
		{Name: "Claim", Doc: doc["claimRef"], Value: func(v *volume) any {
			if v.Spec.ClaimRef == nil {
				return ""
			}
			return v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name
		}},
		{Name: "StorageClass", Doc: "StorageClass of the pv", Value: func(v *volume) any { return helpers.GetPersistentVolumeClass(v) }},
		{Name: "VolumeAttributesClass", Doc: "VolumeAttributesClass of the pv", Value: func(v *volume) any { return resource.OrUnset(v.Spec.VolumeAttributesClassName) }},
		{Name: "Reason", Doc: status["reason"], Value: func(v *volume) any { return v.Status.Reason }},
		{Name: "Age"},
		{Name: "VolumeMode", Wide: true, Doc: doc["volumeMode"], Value: func(v *volume) any { return resource.OrUnset(v.Spec.VolumeMode) }},
	}
}
