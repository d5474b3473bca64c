"""Ultralytics' `YOLO.train` of its smallest classifier from scratch, as its guide shows.

A detector would need torchvision's own operator for its boxes, which only a torchvision built like torch has.
"""

from ultralytics import YOLO

YOLO("yolov8n-cls.yaml").train(
    data="images", epochs=3, imgsz=64, batch=8, nbs=8, workers=0, device="cpu", plots=False, seed=0, amp=False,
)  # fmt: skip
