{{- /* Name of everything of this installation. */ -}}
{{- define "kata.name" -}}
{{- with .Values.env.multiInstallSuffix -}}{{ $.Chart.Name }}-{{ . }}{{- else -}}{{ .Chart.Name }}{{- end -}}
{{- end -}}

{{- /* The installer's container, for one machine. */ -}}
{{- define "kata.container" -}}
name: kube-kata
image: {{ .Values.image.reference }}:{{ .Values.image.tag | default .Chart.AppVersion }}
imagePullPolicy: {{ .Values.imagePullPolicy }}
env:
  - name: NODE_NAME
    valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
  - {name: DAEMONSET_NAME, value: {{ include "kata.name" . }}}
{{- if eq .Values.deploymentMode "job" }}
  # On a real node the stand-in of the image runs, which has to end for the Job to be done.
  - {name: STAND_IN_ENDS, value: "0"}
{{- end }}
volumeMounts:
  - {name: custom-configs, mountPath: /custom-configs}
{{- end -}}

{{- define "kata.volumes" -}}
- name: custom-configs
  configMap: {name: {{ include "kata.name" . }}-custom-configs}
{{- end -}}
