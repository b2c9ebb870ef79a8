package volumespec

import (
	"maps"
	"math"
	"net"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods/validation"
)

// kind is a kind of volume: its field, and what is wrong with it in a specification. It is nil of a specification that has no such volume.
type kind struct {
	name  string
	check func(s *corev1.PersistentVolumeSource) func(at *field.Path) field.ErrorList
}

func of[S any](name string, get func(*corev1.PersistentVolumeSource) *S, check func(*S, *field.Path) field.ErrorList) kind {
	return kind{name, func(s *corev1.PersistentVolumeSource) func(*field.Path) field.ErrorList {
		one := get(s)
		if one == nil {
			return nil
		}
		return func(at *field.Path) field.ErrorList { return check(one, at) }
	}}
}

type sources = corev1.PersistentVolumeSource

// kinds are all that the API knows, in the order in which a Kubernetes API server looks for them.
var kinds = []kind{
	of("hostPath", func(s *sources) *corev1.HostPathVolumeSource { return s.HostPath }, validation.HostPath),
	of("gcePersistentDisk", func(s *sources) *corev1.GCEPersistentDiskVolumeSource { return s.GCEPersistentDisk },
		func(d *corev1.GCEPersistentDiskVolumeSource, at *field.Path) field.ErrorList {
			return append(required(d.PDName != "", at.Child("pdName")), partition(d.Partition, at.Child("partition"))...)
		}),
	of("awsElasticBlockStore", func(s *sources) *corev1.AWSElasticBlockStoreVolumeSource { return s.AWSElasticBlockStore },
		func(d *corev1.AWSElasticBlockStoreVolumeSource, at *field.Path) field.ErrorList {
			return append(required(d.VolumeID != "", at.Child("volumeID")), partition(d.Partition, at.Child("partition"))...)
		}),
	of("glusterfs", func(s *sources) *corev1.GlusterfsPersistentVolumeSource { return s.Glusterfs }, glusterfs),
	of("flocker", func(s *sources) *corev1.FlockerVolumeSource { return s.Flocker }, flocker),
	of("nfs", func(s *sources) *corev1.NFSVolumeSource { return s.NFS }, nfs),
	of("rbd", func(s *sources) *corev1.RBDPersistentVolumeSource { return s.RBD },
		func(r *corev1.RBDPersistentVolumeSource, at *field.Path) field.ErrorList {
			return append(required(len(r.CephMonitors) > 0, at.Child("monitors")), required(r.RBDImage != "", at.Child("image"))...)
		}),
	of("quobyte", func(s *sources) *corev1.QuobyteVolumeSource { return s.Quobyte }, quobyte),
	of("cephfs", func(s *sources) *corev1.CephFSPersistentVolumeSource { return s.CephFS },
		func(c *corev1.CephFSPersistentVolumeSource, at *field.Path) field.ErrorList {
			return required(len(c.Monitors) > 0, at.Child("monitors"))
		}),
	of("iscsi", func(s *sources) *corev1.ISCSIPersistentVolumeSource { return s.ISCSI }, iscsi),
	of("cinder", func(s *sources) *corev1.CinderPersistentVolumeSource { return s.Cinder },
		func(c *corev1.CinderPersistentVolumeSource, at *field.Path) field.ErrorList {
			errs := required(c.VolumeID != "", at.Child("volumeID"))
			if c.SecretRef != nil {
				errs = append(errs, secretNamed(c.SecretRef.Name, c.SecretRef.Namespace, at.Child("secretRef"))...)
			}
			return errs
		}),
	of("fc", func(s *sources) *corev1.FCVolumeSource { return s.FC }, fibreChannel),
	of("flexVolume", func(s *sources) *corev1.FlexPersistentVolumeSource { return s.FlexVolume }, flexVolume),
	of("azureFile", func(s *sources) *corev1.AzureFilePersistentVolumeSource { return s.AzureFile },
		func(a *corev1.AzureFilePersistentVolumeSource, at *field.Path) field.ErrorList {
			errs := append(required(a.SecretName != "", at.Child("secretName")), required(a.ShareName != "", at.Child("shareName"))...)
			return append(errs, required(a.SecretNamespace == nil || *a.SecretNamespace != "", at.Child("secretNamespace"))...)
		}),
	of("vsphereVolume", func(s *sources) *corev1.VsphereVirtualDiskVolumeSource { return s.VsphereVolume },
		func(v *corev1.VsphereVirtualDiskVolumeSource, at *field.Path) field.ErrorList {
			return required(v.VolumePath != "", at.Child("volumePath"))
		}),
	of("photonPersistentDisk", func(s *sources) *corev1.PhotonPersistentDiskVolumeSource { return s.PhotonPersistentDisk },
		func(p *corev1.PhotonPersistentDiskVolumeSource, at *field.Path) field.ErrorList {
			return required(p.PdID != "", at.Child("pdID"))
		}),
	of("portworxVolume", func(s *sources) *corev1.PortworxVolumeSource { return s.PortworxVolume },
		func(p *corev1.PortworxVolumeSource, at *field.Path) field.ErrorList {
			return required(p.VolumeID != "", at.Child("volumeID"))
		}),
	of("azureDisk", func(s *sources) *corev1.AzureDiskVolumeSource { return s.AzureDisk }, azureDisk),
	of("scaleIO", func(s *sources) *corev1.ScaleIOPersistentVolumeSource { return s.ScaleIO },
		func(s *corev1.ScaleIOPersistentVolumeSource, at *field.Path) field.ErrorList {
			errs := append(required(s.Gateway != "", at.Child("gateway")), required(s.System != "", at.Child("system"))...)
			return append(errs, required(s.VolumeName != "", at.Child("volumeName"))...)
		}),
	of("local", func(s *sources) *corev1.LocalVolumeSource { return s.Local },
		func(l *corev1.LocalVolumeSource, at *field.Path) field.ErrorList {
			return validation.HostPath(&corev1.HostPathVolumeSource{Path: l.Path}, at) // a path, too
		}),
	of("storageos", func(s *sources) *corev1.StorageOSPersistentVolumeSource { return s.StorageOS }, storageOS),
	of("csi", func(s *sources) *corev1.CSIPersistentVolumeSource { return s.CSI }, csi),
}

// source is about the volume that a specification names: the first one, the others are one too many. volume is the name of its object.
func source(s *corev1.PersistentVolumeSpec, volume string, at *field.Path) (errs field.ErrorList) {
	found := false
	for _, k := range kinds {
		check := k.check(&s.PersistentVolumeSource)
		switch {
		case check == nil:
		case found:
			errs = append(errs, field.Forbidden(at.Child(k.name), "may not specify more than 1 volume type"))
		default:
			found = true
			errs = append(errs, check(at.Child(k.name))...)
		}
	}
	if !found {
		errs = append(errs, field.Required(at, "must specify a volume type"))
	}
	const most = 64
	if i := s.ISCSI; i != nil && i.InitiatorName != nil && len(volume+":"+i.TargetPortal) > most {
		errs = append(errs, field.Invalid(at.Child("iscsi", "targetportal"), i.TargetPortal,
			"Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."))
	}
	return errs
}

func partition(n int32, at *field.Path) field.ErrorList {
	if n < 0 || n > math.MaxUint8 {
		return field.ErrorList{field.Invalid(at, n, utilvalidation.InclusiveRangeError(1, math.MaxUint8))}
	}
	return nil
}

func glusterfs(g *corev1.GlusterfsPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := append(required(g.EndpointsName != "", at.Child("endpoints")), required(g.Path != "", at.Child("path"))...)
	where := at.Child("endpointsNamespace")
	switch ns := g.EndpointsNamespace; {
	case ns == nil:
	case *ns == "":
		errs = append(errs, field.Invalid(where, *ns, "if the endpointnamespace is set, it must be a valid namespace name"))
	default:
		errs = append(errs, invalid(*ns, where, apivalidation.ValidateNamespaceName(*ns, false))...)
	}
	return errs
}

func flocker(f *corev1.FlockerVolumeSource, at *field.Path) (errs field.ErrorList) {
	if f.DatasetName == "" && f.DatasetUUID == "" {
		errs = append(errs, field.Required(at, "one of datasetName and datasetUUID is required"))
	}
	if f.DatasetName != "" && f.DatasetUUID != "" {
		errs = append(errs, field.Invalid(at, "resource", "datasetName and datasetUUID can not be specified simultaneously"))
	}
	if strings.Contains(f.DatasetName, "/") {
		errs = append(errs, field.Invalid(at.Child("datasetName"), f.DatasetName, "must not contain '/'"))
	}
	return errs
}

func nfs(n *corev1.NFSVolumeSource, at *field.Path) field.ErrorList {
	errs := append(required(n.Server != "", at.Child("server")), required(n.Path != "", at.Child("path"))...)
	if !path.IsAbs(n.Path) {
		errs = append(errs, field.Invalid(at.Child("path"), n.Path, "must be an absolute path"))
	}
	return errs
}

func quobyte(q *corev1.QuobyteVolumeSource, at *field.Path) (errs field.ErrorList) {
	const pairs, longest = "must be a host:port pair or multiple pairs separated by commas", 64
	switch {
	case q.Registry == "":
		errs = append(errs, field.Required(at.Child("registry"), pairs))
	case len(q.Tenant) > longest:
		errs = append(errs, field.Required(at.Child("tenant"), "must be a UUID and may not exceed a length of 64 characters"))
	default:
		for pair := range strings.SplitSeq(q.Registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				errs = append(errs, field.Invalid(at.Child("registry"), q.Registry, pairs))
			}
		}
	}
	return append(errs, required(q.Volume != "", at.Child("volume"))...)
}

// initiators are the forms of names of iSCSI (RFC 3720, 3.2.6.3), by their beginnings.
var initiators = map[string]*regexp.Regexp{
	"iqn": regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`),
	"eui": regexp.MustCompile(`^eui.[[:alnum:]]{16}$`),
	"naa": regexp.MustCompile(`^naa.[[:alnum:]]{32}$`),
}

func initiator(name string, at *field.Path) field.ErrorList {
	for prefix, form := range initiators {
		if strings.HasPrefix(name, prefix) && form.MatchString(name) {
			return nil
		}
	}
	return field.ErrorList{field.Invalid(at, name, "must be valid format")}
}

func iscsi(i *corev1.ISCSIPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := required(i.TargetPortal != "", at.Child("targetPortal"))
	if i.IQN == "" {
		errs = append(errs, required(false, at.Child("iqn"))...)
	} else {
		errs = append(errs, initiator(i.IQN, at.Child("iqn"))...)
	}
	errs = append(errs, lun(i.Lun, at.Child("lun"))...)
	errs = append(errs, required(i.SecretRef != nil || !i.DiscoveryCHAPAuth && !i.SessionCHAPAuth, at.Child("secretRef"))...)
	errs = append(errs, required(i.SecretRef == nil || i.SecretRef.Name != "", at.Child("secretRef", "name"))...)
	if i.InitiatorName != nil {
		errs = append(errs, initiator(*i.InitiatorName, at.Child("initiatorname"))...)
	}
	return errs
}

// lun is the number of a unit of a target.
func lun(n int32, at *field.Path) field.ErrorList {
	if n < 0 || n > math.MaxUint8 {
		return field.ErrorList{field.Invalid(at, n, utilvalidation.InclusiveRangeError(0, math.MaxUint8))}
	}
	return nil
}

func fibreChannel(f *corev1.FCVolumeSource, at *field.Path) (errs field.ErrorList) {
	names := at.Child("targetWWNs")
	switch {
	case len(f.TargetWWNs) == 0 && len(f.WWIDs) == 0:
		errs = append(errs, field.Required(names, "must specify either targetWWNs or wwids, but not both"))
	case len(f.TargetWWNs) > 0 && len(f.WWIDs) > 0:
		errs = append(errs, field.Invalid(names, f.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously"))
	}
	switch {
	case len(f.TargetWWNs) == 0:
	case f.Lun == nil:
		errs = append(errs, field.Required(at.Child("lun"), "lun is required if targetWWNs is specified"))
	default:
		errs = append(errs, lun(*f.Lun, at.Child("lun"))...)
	}
	return errs
}

func flexVolume(f *corev1.FlexPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := required(f.Driver != "", at.Child("driver"))
	for _, key := range slices.Sorted(maps.Keys(f.Options)) {
		domain, _, _ := strings.Cut(key, "/")
		if domain = "." + strings.ToLower(domain); strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
			errs = append(errs, field.Invalid(at.Child("options").Key(key), key, "kubernetes.io and k8s.io namespaces are reserved"))
		}
	}
	return errs
}

func azureDisk(d *corev1.AzureDiskVolumeSource, at *field.Path) field.ErrorList {
	errs := append(required(d.DiskName != "", at.Child("diskName")), required(d.DataDiskURI != "", at.Child("diskURI"))...)
	if d.CachingMode != nil {
		errs = append(errs, oneOf(*d.CachingMode, at.Child("cachingMode"),
			corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)...)
	}
	if d.Kind == nil {
		return errs
	}
	errs = append(errs, oneOf(*d.Kind, at.Child("kind"), corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk, corev1.AzureSharedBlobDisk)...)
	begins, form := "https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
	if *d.Kind == corev1.AzureManagedDisk {
		begins, form = "/subscriptions/", "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
	}
	if !strings.HasPrefix(d.DataDiskURI, begins) {
		errs = append(errs, field.NotSupported(at.Child("diskURI"), d.DataDiskURI, []string{form}))
	}
	return errs
}

func storageOS(s *corev1.StorageOSPersistentVolumeSource, at *field.Path) (errs field.ErrorList) {
	if s.VolumeName == "" {
		errs = append(errs, required(false, at.Child("volumeName"))...)
	} else {
		errs = append(errs, invalid(s.VolumeName, at.Child("volumeName"), utilvalidation.IsDNS1123Label(s.VolumeName))...)
	}
	if s.VolumeNamespace != "" {
		errs = append(errs, invalid(s.VolumeNamespace, at.Child("volumeNamespace"), utilvalidation.IsDNS1123Label(s.VolumeNamespace))...)
	}
	if s.SecretRef != nil {
		errs = append(errs, secretNamed(s.SecretRef.Name, s.SecretRef.Namespace, at.Child("secretRef"))...)
	}
	return errs
}

func csi(c *corev1.CSIPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := DriverName(c.Driver, at.Child("driver"))
	errs = append(errs, required(c.VolumeHandle != "", at.Child("volumeHandle"))...)
	for _, one := range []struct {
		name string
		ref  *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", c.ControllerPublishSecretRef}, {"controllerExpandSecretRef", c.ControllerExpandSecretRef},
		{"nodePublishSecretRef", c.NodePublishSecretRef}, {"nodeExpandSecretRef", c.NodeExpandSecretRef},
	} {
		if one.ref != nil {
			errs = append(errs, secret(one.ref, at.Child(one.name))...)
		}
	}
	return errs
}

// DriverName must be one that a CSI driver can have.
func DriverName(name string, at *field.Path) (errs field.ErrorList) {
	const longest = 63
	switch {
	case name == "":
		return required(false, at)
	case len(name) > longest:
		errs = append(errs, field.TooLong(at, name, longest))
	}
	return append(errs, invalid(name, at, utilvalidation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

// secretNamed requires the name of a Secret, and its namespace.
func secretNamed(name, namespace string, at *field.Path) field.ErrorList {
	return append(required(name != "", at.Child("name")), required(namespace != "", at.Child("namespace"))...)
}

// secret requires a Secret that there can be.
func secret(ref *corev1.SecretReference, at *field.Path) field.ErrorList {
	errs := secretNamed(ref.Name, ref.Namespace, at)
	if ref.Name != "" {
		errs = append(errs, invalid(ref.Name, at.Child("name"), utilvalidation.IsDNS1123Subdomain(ref.Name))...)
	}
	if ref.Namespace != "" {
		errs = append(errs, invalid(ref.Namespace, at.Child("namespace"), utilvalidation.IsDNS1123Label(ref.Namespace))...)
	}
	return errs
}

func invalid(value string, at *field.Path, messages []string) (errs field.ErrorList) {
	for _, msg := range messages {
		errs = append(errs, field.Invalid(at, value, msg))
	}
	return errs
}
